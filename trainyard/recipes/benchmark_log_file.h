// --benchmark_log_dir, for whatever runs the steps.
#pragma once

#include <memory>

#include "trainyard/core/flags/flags.h"
#include "trainyard/recipes/benchmark_settings.h"
#include "trainyard/train/callbacks/benchmark_log.h"

namespace trainyard::recipes {

// With the run's facts written; null without the flag. batch_size: images a step, over all devices.
std::unique_ptr<train::BenchmarkLog> open_benchmark_log(const core::FlagValues& values,
                                                        const BenchmarkSettings& settings, int64_t batch_size);

}  // namespace trainyard::recipes
