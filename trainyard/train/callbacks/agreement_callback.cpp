#include "trainyard/train/callbacks/agreement_callback.h"

#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

void AgreementCallback::after_step(Trainer& trainer, const StepView&) {
  std::string wish;
  if (stop_.stop_requested()) {
    wish = stop_.message();
  } else if (trainer.stopping()) {
    wish = "a callback asked for it";
  }
  const std::string end = agreement_->agree_on_end(wish);
  if (!end.empty()) trainer.stop(end);
}

}  // namespace trainyard::train
