// What a run prints and writes in addition to its checkpoints: lines, summaries, logs, traces. The requested options,
// and their flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/flags/option_flags.h"

namespace trainyard::frontends {

struct DisplayOptions {
  int64_t display_every = 10;
  std::optional<double> display_perf_ewma{};
  bool print_training_accuracy = false;
  std::string progress = "auto";  // "on", "off"
  int64_t summary_verbosity = 0;
  std::optional<int64_t> save_summaries_steps{};  // unset: none; in `trainyard train` the displayed steps
  std::vector<std::string> trackers{};            // "mlflow": where else the run's numbers are written
  std::string mlflow_dir{};  // MLflow's file store; empty: mlruns, in the folder of the train directory
  std::string benchmark_log_dir{}, benchmark_test_id{};
  std::string trace_file{}, tfprof_file{};  // empty: none
  std::string graph_file{}, partitioned_graph_file_prefix{};
  bool use_chrome_trace_format = true;
  bool ml_perf_compliance_logging = false;  // lines of mlperf/compliance_log.h, on stderr
};

// Make the flags of printed lines, of summaries and logs, of traces, and of graph files, for core::flags_of().
[[nodiscard]] core::OptionFlags<DisplayOptions> line_flags();
[[nodiscard]] core::OptionFlags<DisplayOptions> log_flags();
[[nodiscard]] core::OptionFlags<DisplayOptions> trace_flags();
[[nodiscard]] core::OptionFlags<DisplayOptions> graph_flags();
// Reads all of them, and also --progress, which the flags of each program declare.
[[nodiscard]] DisplayOptions read_display_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
