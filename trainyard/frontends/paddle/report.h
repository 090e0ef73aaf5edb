// Writes the report of a run: lines on the console, and the same as JSON objects, one per line, in the report file,
// both in the form of DLLogger, which NVIDIA's examples use (docs/howto/program.md).
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/paddle/arguments.h"

namespace trainyard::train {
class LineFile;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::program {

using Metrics = std::vector<std::pair<std::string, double>>;
// {epoch, iteration}, {epoch}, or {} for the summary.
using Step = std::vector<int64_t>;

class Report {
 public:
  // Prints to `out`, and writes into the file if `path` is not empty. With `append` adds to the existing lines, else
  // replaces them when the first line is written. Throws kIo, kNoSpace and so on when it cannot be opened.
  Report(std::ostream& out, const std::string& path, bool append = false);

  // Writes the options, as text in JSON by name.
  void parameters(const std::vector<std::pair<std::string, std::string>>& options);
  // Writes numbers; those that are not finite are texts in JSON: "nan", "inf", "-inf". Throws kIo, kNoSpace.
  void log(const Step& step, const Metrics& metrics);

  // Sets the clock, which returns seconds since the Unix epoch; for tests.
  void set_clock(std::function<double()> clock) {
    clock_ = std::move(clock);
    start_ = clock_();
  }

 private:
  void write(const std::string& shown_step, const std::string& json_step,
             const std::vector<std::pair<std::string, std::string>>& shown, const std::string& json);

  std::ostream& out_;
  std::string path_;
  std::shared_ptr<train::LineFile> file_;
  bool truncates_ = false;
  std::function<double()> clock_;
  double start_ = 0;
};

// Writes metrics with the prefix "train." or "val." before each name.
void log_info(Report& report, const Step& step, const Metrics& metrics, Mode mode);

// The best of each metric over epochs: the largest of top1, top5 and ips, the smallest of all others.
class MetricSummary {
 public:
  void update(const Metrics& metrics);
  bool is_updated() const { return !best_.empty(); }
  const Metrics& metrics() const { return best_; }

 private:
  Metrics best_;
};

}  // namespace trainyard::frontends::program
TRAINYARD_EXPORT_END
