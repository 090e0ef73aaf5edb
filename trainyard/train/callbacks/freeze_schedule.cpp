#include "trainyard/train/callbacks/freeze_schedule.h"

#include "trainyard/core/base/log.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

std::vector<bool> FreezeSchedule::active_in(int64_t step) const {
  std::vector<bool> active;
  for (const FreezePeriod& period : periods_) active.push_back(period.contains(step));
  return active;
}

void FreezeSchedule::apply(Trainer& trainer, int64_t step) const {
  trainer.set_trainable("*", true);
  for (const FreezePeriod& period : periods_) {
    if (!period.contains(step)) continue;
    for (const std::string& pattern : period.patterns) trainer.set_trainable(pattern, false);
  }
}

void FreezeSchedule::before_train(Trainer& trainer) {
  // A pattern that matches nothing is an error now, not in the epoch in which it would first be looked for.
  for (const FreezePeriod& period : periods_) {
    for (const std::string& pattern : period.patterns) trainer.set_trainable(pattern, false);
  }
  active_ = active_in(trainer.global_step());
  apply(trainer, trainer.global_step());
}

void FreezeSchedule::before_step(Trainer& trainer) {
  const std::vector<bool> now = active_in(trainer.global_step());
  if (now == active_) return;
  const size_t before = trainer.frozen_parameters().size();
  apply(trainer, trainer.global_step());
  active_ = now;
  if (trainer.is_chief()) {
    core::log::info("after step {}: {} parameters are frozen, {} were", trainer.global_step(),
                    trainer.frozen_parameters().size(), before);
  }
}

}  // namespace trainyard::train
