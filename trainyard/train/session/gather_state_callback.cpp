#include "trainyard/train/session/gather_state_callback.h"

#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

void GatherStateCallback::before_train(Trainer&) {
  in_step_ = false;
}

void GatherStateCallback::before_step(Trainer&) {
  in_step_ = true;
}

void GatherStateCallback::after_step(Trainer& trainer, const StepView& view) {
  gather_if(trainer, checkpoints_ && checkpoints_->saves_after(view));
  in_step_ = false;
}

void GatherStateCallback::trigger_epoch(Trainer& trainer) {
  gather_if(trainer, checkpoints_ && checkpoints_->saves_each_epoch());
}

// After a step that has failed nothing is saved, and the ranks may be at different places.
void GatherStateCallback::after_train(Trainer& trainer) {
  if (!in_step_) gather_if(trainer, checkpoints_ && checkpoints_->saves_at_end(trainer));
}

void GatherStateCallback::gather_if(Trainer& trainer, bool saves) {
  if (ranks_->from_first("whether the ranks' states are saved", saves ? "yes" : "").empty()) return;
  trainer.progress("gather state");
  gather_();
}

}  // namespace trainyard::train
