#include "trainyard/train/callbacks/callback_wrappers.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

CallbackWrapper::CallbackWrapper(std::shared_ptr<Callback> callback) : inner_(std::move(callback)) {
  if (!inner_) throw Error(ErrorCode::kInvalidArgument, "a callback's wrapper needs a callback");
}

void Period::validate(bool may_be_none) const {
  const bool none = every_k_steps == 0 && every_k_epochs == 0;
  if (every_k_steps >= 0 && every_k_epochs >= 0 && (may_be_none || !none)) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "a callback's period is not usable",
               .expected = "every_k_steps or every_k_epochs of at least 1",
               .actual = fmt::format("every_k_steps {}, every_k_epochs {}", every_k_steps, every_k_epochs)});
}

PeriodicTrigger::PeriodicTrigger(std::shared_ptr<Callback> callback, Period period, bool before_train)
    : CallbackWrapper(std::move(callback)), period_(period), before_train_(before_train) {
  period_.validate(before_train);
}

void PeriodicTrigger::before_train(Trainer& trainer) {
  inner().before_train(trainer);
  if (before_train_) inner().trigger(trainer);
}

void PeriodicTrigger::after_step(Trainer& trainer, const StepView& view) {
  inner().after_step(trainer, view);
  if (period_.every_k_steps > 0 && trainer.global_step() % period_.every_k_steps == 0) inner().trigger(trainer);
}

void PeriodicTrigger::trigger_epoch(Trainer& trainer) {
  if (period_.every_k_epochs > 0 && trainer.epoch() % period_.every_k_epochs == 0) inner().trigger(trainer);
}

void ConditionalCallback::before_epoch(Trainer& trainer) {
  if (enabled(trainer, Event::kBeforeEpoch)) inner().before_epoch(trainer);
}

void ConditionalCallback::before_step(Trainer& trainer) {
  in_step_ = enabled(trainer, Event::kBeforeStep);
  if (in_step_) inner().before_step(trainer);
}

void ConditionalCallback::after_step(Trainer& trainer, const StepView& view) {
  if (in_step_) inner().after_step(trainer, view);
}

void ConditionalCallback::after_epoch(Trainer& trainer) {
  if (enabled(trainer, Event::kAfterEpoch)) inner().after_epoch(trainer);
}

void ConditionalCallback::trigger_epoch(Trainer& trainer) {
  if (enabled(trainer, Event::kTriggerEpoch)) inner().trigger_epoch(trainer);
}

EnableCallbackIf::EnableCallbackIf(std::shared_ptr<Callback> callback, Predicate predicate)
    : ConditionalCallback(std::move(callback)), predicate_(std::move(predicate)) {
  if (!predicate_) throw Error(ErrorCode::kInvalidArgument, "EnableCallbackIf needs a predicate");
}

PeriodicCallback::PeriodicCallback(std::shared_ptr<Callback> callback, Period period)
    : ConditionalCallback(std::move(callback)), period_(period) {
  period_.validate();
}

bool PeriodicCallback::enabled(Trainer& trainer, Event event) {
  const int64_t step = trainer.global_step() + (event == Event::kBeforeStep ? 1 : 0);
  return (period_.every_k_steps > 0 && step % period_.every_k_steps == 0) ||
         (period_.every_k_epochs > 0 && trainer.epoch() % period_.every_k_epochs == 0);
}

RunFunction::RunFunction(std::string name, Function function, RunFunctionTimes times)
    : name_(std::move(name)), function_(std::move(function)), times_(times) {
  if (!function_) throw Error(ErrorCode::kInvalidArgument, {.problem = "RunFunction needs a function", .where = name_});
}

void RunFunction::before_train(Trainer& trainer) {
  if (times_.before_train) function_(trainer);
}

void RunFunction::after_step(Trainer& trainer, const StepView&) {
  if (times_.each_step) function_(trainer);
}

void RunFunction::trigger(Trainer& trainer) {
  if (times_.as_trigger) function_(trainer);
}

}  // namespace trainyard::train
