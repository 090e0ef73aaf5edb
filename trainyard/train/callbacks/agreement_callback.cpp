#include "trainyard/train/callbacks/agreement_callback.h"

#include <optional>

#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

void AgreementCallback::setup(Trainer& trainer) {
  trainer.stop_by_agreement();
}

void AgreementCallback::after_step(Trainer& trainer, const StepView&) {
  parallel::TrainingEnd wish;
  if (const std::optional<core::StopToken> stop = trainer.requested_stop()) wish = {stop->reason(), stop->message()};
  if (const parallel::TrainingEnd end = agreement_->agree_on_end(wish)) trainer.agree_to_stop(end.why, end.message);
}

}  // namespace trainyard::train
