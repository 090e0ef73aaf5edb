// --benchmark_log_dir, for all modes.
#pragma once

#include <memory>

#include "trainyard/core/base/export.h"
#include "trainyard/recipes/tf_cnn/output/benchmark_log.h"
#include "trainyard/recipes/tf_cnn/prepare.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

// With the run's facts written; null without the flag. batch_size: images a step, over all devices.
std::unique_ptr<BenchmarkLog> open_benchmark_log(const PreparedRun& run, int64_t batch_size);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
