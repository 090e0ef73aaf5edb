// Runs the trials of a search, each a process of this program.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/cli/tune_search.h"
#include "trainyard/core/threads/stop_token.h"

namespace trainyard::cli {

struct TuneOptions {
  std::string directory{};  // of the record and the trials; it exists
  std::string program{};    // the path of `trainyard`
  int max_parallel = 1;
  bool retry_failed = false;  // begins the trials that failed again, from their checkpoints
};

// Runs the search until no trial is left, or `stop` is requested, which is passed on to the trials: they save and end.
// Continues the record that is in the directory. Prints a line on `out` for each part of a trial that has ended. The
// trials end with this process, however it ends. Returns the trials.
//
// A trial that fails does not end the search: its reason is the last error of its log, log.txt in its folder, or how
// its process ended. Throws what files throw.
std::vector<Trial> run_tune(const TuneFile& file, const TuneOptions& options, std::ostream& out,
                            const core::StopToken& stop);

// Returns the threads of a trial, which shares the cores with those that run at the same time; 0 leaves them to it.
[[nodiscard]] int trial_threads(const TuneOptions& options);

// Returns the command line of a part of a trial, without the program: "train", the trial's flags, and those of the
// search. `threads` are those of a trial; 0 leaves them to it.
[[nodiscard]] std::vector<std::string> trial_arguments(const TuneFile& file, const TuneOptions& options,
                                                       const Trial& trial, size_t level, int threads);

// The last value of a metric in the text of a metrics.jsonl.
struct MetricValue {
  double value = 0;  // may be no number
  int64_t global_step = 0;
};
// Returns it from the evaluations where they have this metric, else from the training steps; nothing when neither have.
[[nodiscard]] std::optional<MetricValue> last_metric(const std::string& metrics_jsonl, std::string_view metric);

// Returns the message of the last error in the log of a process, without time and level; empty when it has none.
[[nodiscard]] std::string last_error(const std::string& log);

}  // namespace trainyard::cli
