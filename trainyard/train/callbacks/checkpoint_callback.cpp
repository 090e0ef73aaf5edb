#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/train/callbacks/savers.h"
#include "trainyard/train/checkpoint/saving_time.h"
#include "trainyard/train/loop/local_steps.h"

namespace trainyard::train {

void CheckpointCallbackOptions::validate() const {
  if (save_steps < 0 || !(save_seconds >= 0) || warmup_steps < 0) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "intervals of checkpoints must not be negative",
         .actual = fmt::format("{} steps, {} seconds, {} steps of warm-up", save_steps, save_seconds, warmup_steps)});
  }
  if (save_steps > 0 && save_seconds > 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      "At most one of --save_model_secs and --save_model_steps can be specified");
  }
}

CheckpointCallback::CheckpointCallback(CheckpointStore store, CheckpointCallbackOptions options)
    : store_(std::move(store)),
      options_(std::move(options)),
      local_steps_(std::make_shared<LocalSteps>(options_.warmup_steps, options_.over_all_runs)) {
  options_.validate();
  if (!options_.clock) options_.clock = SavingTime::steady_seconds;
  time_ = std::make_shared<SavingTime>(options_.clock);
}

void CheckpointCallback::before_train(Trainer& trainer) {
  local_steps_->begin(trainer);
  last_time_ = options_.clock();
  last_saved_.reset();
  in_step_ = false;
}

void CheckpointCallback::before_step(Trainer&) {
  in_step_ = true;
  saves_.reset();
}

bool CheckpointCallback::saves_after(const StepView& view) {
  if (saves_) return *saves_;
  const int64_t done = local_steps_->of(view) + 1;
  const bool by_steps = options_.save_steps > 0 && done > 0 && done % options_.save_steps == 0;
  const bool by_choice = options_.due && done > 0 && options_.due(done);
  const bool by_time = options_.save_seconds > 0 && options_.clock() - last_time_ >= options_.save_seconds;
  saves_ = by_steps || by_choice || by_time;
  return *saves_;
}

void CheckpointCallback::after_step(Trainer& trainer, const StepView& view) {
  if (saves_after(view)) save_now(trainer);
  in_step_ = false;  // here: what cannot be saved is not tried again at the end
}

void CheckpointCallback::trigger_epoch(Trainer& trainer) {
  if (options_.each_epoch && time_->allows()) save_now(trainer);
}

bool CheckpointCallback::saves_at_end(const Trainer& trainer) const {
  if (in_step_ || !options_.save_at_end) return false;
  return !last_saved_ || last_saved_->global_step != trainer.global_step();
}

void CheckpointCallback::after_train(Trainer& trainer) {
  if (saves_at_end(trainer)) save_now(trainer);
}

void CheckpointCallback::save_now(const Trainer& trainer) {
  trainer.progress("save");
  if (options_.before_save) options_.before_save();
  try {
    time_->measure([&] {
      last_saved_ = store_.save(trainer.global_step(), options_.identity, options_.state ? *options_.state : trainer);
    });
  } catch (const NonFiniteState& error) {
    if (options_.non_finite_is_error) throw;
    core::log::warning("{}", error.what());
  }
  last_time_ = options_.clock();
}

}  // namespace trainyard::train
