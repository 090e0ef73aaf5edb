// Prints the scalars of an epoch, one per line, by name.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/train/monitors/monitor.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

struct ScalarPrinterOptions {
  // Patterns of full_name()s (core/base/pattern.h). Names that match the white list and not the black list are printed.
  std::vector<std::string> white_list{"*"};
  std::vector<std::string> black_list{};
  std::function<void(std::string_view line)> print{};  // empty: prints to the log
};

// Prints "loss: 0.52", the last value of each scalar, when an epoch ends, and those after the last epoch when it is
// closed.
class ScalarPrinter : public Monitor {
 public:
  explicit ScalarPrinter(ScalarPrinterOptions options = {});

  void write(const Scalars& scalars) override;
  void end_epoch(int64_t epoch, int64_t global_step) override;
  void close() override { print_all(); }

 private:
  void print_all();

  ScalarPrinterOptions options_;
  std::map<std::string, double> values_;  // since the last epoch
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
