#include "trainyard/train/callbacks/agreement_callback.h"

#include <chrono>
#include <optional>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

void AgreementCallback::setup(Trainer& trainer) {
  trainer.stop_by_agreement();
}

parallel::TrainingEnd requested_end(const Trainer& trainer) {
  const std::optional<core::StopToken> stop = trainer.requested_stop();
  return stop ? parallel::TrainingEnd{stop->reason(), stop->message()} : parallel::TrainingEnd();
}

void AgreementCallback::after_step(Trainer& trainer, const StepView&) {
  const auto begin = std::chrono::steady_clock::now();
  const parallel::TrainingEnd end = agreement_->agree_on_end(requested_end(trainer));
  if (waited_) waited_(core::seconds_since(begin));
  if (end) trainer.agree_to_stop(end.why, end.message);
}

}  // namespace trainyard::train
