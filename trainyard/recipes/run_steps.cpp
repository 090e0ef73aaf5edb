#include "trainyard/recipes/run_steps.h"

#include <algorithm>
#include <ostream>

#include <fmt/ostream.h>

#include "trainyard/recipes/benchmark_state.h"

namespace trainyard::recipes {

RunSteps make_run_steps(const core::FlagValues& values, const BenchmarkSettings& settings, int64_t first_step) {
  const int64_t left = remaining_steps(values, settings, first_step);
  RunSteps steps{.first = first_step,
                 .warmup = settings.plan.num_warmup_batches,
                 .timed = left,
                 .over_all_runs = settings.dialect == Dialect::kTrainyard};
  if (steps.over_all_runs) {
    steps.warmup = std::min(steps.warmup, std::max<int64_t>(0, left - 1));  // one is always timed and shown
    steps.timed = left - steps.warmup;
  }
  return steps;
}

void print_rounded_warmup(const BenchmarkSettings& settings, std::ostream& out) {
  if (settings.dialect != Dialect::kTfCnnBenchmarks || !settings.plan.warmup_was_rounded) return;
  fmt::print(out, "Round up warm up steps to {} to match batch_group_size\n", settings.plan.num_warmup_batches);
}

train::DisplayedSteps displayed_steps(const core::FlagValues& values, const BenchmarkSettings& settings) {
  return {.every = values.integer("display_every"), .last = settings.plan.num_batches};
}

}  // namespace trainyard::recipes
