// A running sum, mean and last value of a number.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

class AverageMeter {
 public:
  // `format` is the format specification of the value: "7.4f".
  explicit AverageMeter(std::string name = "", std::string format = "f", std::string postfix = "")
      : name_(std::move(name)), format_(std::move(format)), postfix_(std::move(postfix)) {}

  void reset() { val_ = avg_ = sum_ = 0, count_ = 0; }
  // Adds a value for `n` samples.
  void update(double value, int64_t n = 1) {
    val_ = value;
    sum_ += value * static_cast<double>(n);
    count_ += n;
    avg_ = sum_ / static_cast<double>(count_);
  }

  const std::string& name() const { return name_; }
  double val() const { return val_; }  // the last one
  double avg() const { return avg_; }
  double sum() const { return sum_; }
  int64_t count() const { return count_; }
  // Returns the sum as text, with the postfix: "12.34567 s,".
  [[nodiscard]] std::string total() const { return fmt::format(fmt::runtime("{:" + format_ + "}{}"), sum_, postfix_); }

 private:
  std::string name_, format_, postfix_;
  double val_ = 0, avg_ = 0, sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
