// Counts the steps of this run: the warm-up goes from -warmup_steps to -1, then steps count from 0, whatever the global
// step was at the start. With `over_all_runs` it counts the steps of the whole training: the global step.
#pragma once

#include <cstdint>

#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

class LocalSteps {
 public:
  explicit LocalSteps(int64_t warmup_steps = 0, bool over_all_runs = false)
      : warmup_steps_(over_all_runs ? 0 : warmup_steps), over_all_runs_(over_all_runs) {}

  // Call it in before_train.
  void begin(const Trainer& trainer) { first_ = over_all_runs_ ? 0 : trainer.own_steps(); }
  // Returns the number of the step that ran: 0 is the first after the warm-up.
  [[nodiscard]] int64_t of(const StepView& view) const {
    return (over_all_runs_ ? view.global_step : view.own_step) - first_ - warmup_steps_;
  }
  // Returns the number of the step that runs next, which is how many have run since the warm-up; negative during it.
  [[nodiscard]] int64_t next(const Trainer& trainer) const {
    return (over_all_runs_ ? trainer.global_step() : trainer.own_steps()) - first_ - warmup_steps_;
  }

 private:
  int64_t warmup_steps_;
  bool over_all_runs_;
  int64_t first_ = 0;
};

}  // namespace trainyard::train
