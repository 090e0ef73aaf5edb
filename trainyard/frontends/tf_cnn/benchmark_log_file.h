// --benchmark_log_dir, for all modes.
#pragma once

#include <memory>

#include "trainyard/frontends/tf_cnn/output/benchmark_log.h"
#include "trainyard/frontends/tf_cnn/prepare.h"

namespace trainyard::frontends {

// Opens the log and writes benchmark_run.log, which says what the header says. Returns null without the flag.
[[nodiscard]] std::unique_ptr<BenchmarkLog> open_benchmark_log(const PreparedRun& run);

}  // namespace trainyard::frontends
