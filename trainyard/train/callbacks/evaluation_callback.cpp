#include "trainyard/train/callbacks/evaluation_callback.h"

#include <utility>

#include "trainyard/core/base/error.h"
#include "trainyard/train/callbacks/cut_evaluation.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/loop/local_steps.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {
namespace {

// Returns whether the last step of the training has run, after which it is evaluated at the end alone.
bool ran_all_steps(const Trainer& trainer) {
  const LoopOptions& loop = trainer.loop();
  return trainer.epoch() == loop.max_epoch && trainer.step_in_epoch() == loop.steps_per_epoch;
}

bool is_due(const EvaluationCallbackOptions& options, int64_t steps_done) {
  return steps_done > 0 && options.due && options.due(steps_done);
}

}  // namespace

void EvaluationCallbackOptions::validate() const {
  if (!evaluate) throw core::Error(core::ErrorCode::kInvalidArgument, "an evaluation callback needs `evaluate`");
}

EvaluationCallback::EvaluationCallback(EvaluationCallbackOptions options)
    : options_(std::move(options)),
      local_steps_(std::make_shared<LocalSteps>(options_.warmup_steps, options_.over_all_runs)) {
  options_.validate();
  if (!options_.listener) options_.listener = std::make_shared<EvaluationListener>();
  if (!options_.wall_clock) options_.wall_clock = system_wall_clock;
}

void EvaluationCallback::before_train(Trainer& trainer) {
  local_steps_->begin(trainer);
  last_.reset();
  in_step_ = false;
  ended_ = false;
  const bool missing = options_.cut != nullptr && options_.cut->missing();
  if (!missing || ran_all_steps(trainer) || !is_due(options_, local_steps_->next(trainer))) return;
  in_step_ = true;  // an error leaves nothing to be evaluated at the end
  pause(trainer);
  options_.cut->end_repetition(trainer);
  in_step_ = false;
}

void EvaluationCallback::before_step(Trainer&) {
  in_step_ = true;
}

void EvaluationCallback::after_step(Trainer& trainer, const StepView& view) {
  in_step_ = false;
  if (ran_all_steps(trainer) || !is_due(options_, local_steps_->of(view) + 1)) return;
  if (!trainer.stopping()) return pause(trainer);
  if (options_.cut != nullptr) options_.cut->set_missing(true);
}

void EvaluationCallback::pause(Trainer& trainer) {
  options_.listener->on_begin(EvaluationTime::kDuringTraining, trainer.global_step());
  if (!evaluate(trainer, options_.evaluate)) return;
  const std::optional<std::string> reached = options_.goal ? options_.goal(*last_) : std::nullopt;
  if (!reached) return options_.listener->on_resume();
  options_.listener->on_goal(*reached);
  trainer.stop(*reached);
}

void EvaluationCallback::after_train(Trainer& trainer) {
  // Twice, after a failure, or stopped: by its goal, just evaluated; by a signal, in a hurry.
  if (ended_ || in_step_ || trainer.step_failed()) return;
  ended_ = true;
  if (options_.due) options_.listener->on_training_end();
  if (!options_.at_end) return;
  if (trainer.stopping()) {
    // What stops the last step for another reason wants no evaluation behind it.
    const bool by_signal = ran_all_steps(trainer) && trainer.stopped_by_signal();
    if (by_signal && options_.cut != nullptr) options_.cut->set_missing(true);
    return;
  }
  options_.listener->on_begin(EvaluationTime::kAtTheEnd, trainer.global_step());
  evaluate(trainer, options_.evaluate_at_end ? options_.evaluate_at_end : options_.evaluate);
}

bool EvaluationCallback::evaluate(Trainer& trainer, const std::function<Evaluation()>& measure) {
  try {
    last_ = measure();
  } catch (const core::Error& error) {
    if (error.code() != core::ErrorCode::kCancelled) throw;
    if (options_.cut != nullptr) options_.cut->cut_off(trainer);
    return false;  // a part of an evaluation is none; the training ends and saves behind this step
  }
  if (options_.cut != nullptr) options_.cut->set_missing(false);
  options_.listener->on_result(*last_, trainer.global_step());
  trainer.monitors().write(evaluation_scalars(*last_, trainer.global_step(),
                                              epoch_of(trainer, options_.batch_size, options_.examples_per_epoch),
                                              options_.wall_clock()));
  trainer.monitors().flush();
  if (options_.on_evaluation) options_.on_evaluation(*last_, trainer.global_step());
  return true;
}

Scalars evaluation_scalars(const Evaluation& evaluation, int64_t global_step, double epoch, double wall_time) {
  Scalars scalars{.global_step = global_step,
                  .epoch = epoch,
                  .wall_time = wall_time,
                  .phase = "eval",
                  .values = {{"top_1_accuracy", evaluation.top_1},
                             {"top_5_accuracy", evaluation.top_5},
                             {"loss", evaluation.loss},
                             {"examples_per_second", examples_per_second(evaluation)}}};
  std::erase_if(scalars.values, [&](const auto& value) {
    const bool hidden = value.first == "top_5_accuracy" && !evaluation.shows_top_5;
    return hidden || (value.first == "loss" && !evaluation.has_loss) ||
           (value.first.ends_with("_accuracy") && !evaluation.has_accuracies);
  });
  // Behind that: these were measured, whatever they are called.
  scalars.values.insert(scalars.values.end(), evaluation.more.begin(), evaluation.more.end());
  return scalars;
}

double examples_per_second(const Evaluation& evaluation) {
  return evaluation.seconds <= 0 ? 0 : static_cast<double>(evaluation.samples) / evaluation.seconds;
}

}  // namespace trainyard::train
