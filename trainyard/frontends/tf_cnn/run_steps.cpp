#include "trainyard/frontends/tf_cnn/run_steps.h"

#include <algorithm>
#include <optional>
#include <ostream>

#include <fmt/ostream.h>

#include "trainyard/core/base/log.h"
#include "trainyard/frontends/tf_cnn/run_state.h"
#include "trainyard/train/loop/step_plan.h"

namespace trainyard::frontends {

RunSteps make_run_steps(const PreparedRun& run, int64_t first_step) {
  const int64_t per_step = run.counts_all_workers() ? run.device.ranks() : 1;
  int64_t left = remaining_steps(run, first_step);
  if (const std::optional<double> epochs = run.options.stop_after_epochs; epochs && left > 0) {
    const int64_t end =
        train::batches_and_epochs(std::nullopt, epochs, run.examples_per_step(), run.train_examples).batches;
    const int64_t done = first_step / per_step;
    left = std::clamp<int64_t>(end - done, 0, left);
    if (left == 0) core::log::info("--stop_after_epochs={:g} is reached: {} steps are done", *epochs, done);
  }
  RunSteps steps{.first = first_step,
                 .warmup = run.plan.num_warmup_batches,
                 .timed = left,
                 .over_all_runs = run.own_dialect() && !run.own_pace(),
                 .per_step = per_step};
  // Workers at their own pace, too, warm up with the first of the requested steps: the schedule of the learning rate
  // ends with the last one.
  if (run.own_dialect()) {
    steps.warmup = std::min(steps.warmup, std::max<int64_t>(0, left - 1));  // one is always timed and shown
    steps.timed = left - steps.warmup;
  }
  return steps;
}

void print_rounded_warmup(const PreparedRun& run, std::ostream& out) {
  if (run.own_dialect() || !run.plan.warmup_was_rounded) return;
  fmt::print(out, "Round up warm up steps to {} to match batch_group_size\n", run.plan.num_warmup_batches);
}

DisplayedSteps displayed_steps(const PreparedRun& run) {
  return {.every = run.options.display.display_every, .last = run.plan.num_batches};
}

}  // namespace trainyard::frontends
