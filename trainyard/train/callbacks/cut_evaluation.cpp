#include "trainyard/train/callbacks/cut_evaluation.h"

#include "trainyard/train/callbacks/agreement_callback.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

namespace {

constexpr const char* kMissingEvaluation = "missing";

}  // namespace

void CutEvaluation::cut_off(Trainer& trainer) {
  missing_ = true;
  end_ = end_together(trainer);
}

void CutEvaluation::end_repetition(Trainer& trainer) {
  end_together(trainer);
  expect_first_step();
}

void CutEvaluation::expect_first_step() const {
  if (ranks_ != nullptr) ranks_->progress("start", -1);
}

parallel::TrainingEnd CutEvaluation::end_together(Trainer& trainer) const {
  parallel::TrainingEnd own = requested_end(trainer);
  if (ranks_ == nullptr) return own;
  parallel::TrainingEnd end = parallel::RankAgreement(ranks_).agree_at_once(own);
  if (end) trainer.agree_to_stop(end.why, end.message);
  return end;
}

// Only where there is something to say: other checkpoints stay as they are.
void CutEvaluation::save(core::StateWriter& writer) const {
  if (missing_) writer.integer(kMissingEvaluation, 1);
  saved_ = missing_;
}

void CutEvaluation::load(const core::StateReader& reader) {
  missing_ = saved_ = reader.has(kMissingEvaluation);
}

}  // namespace trainyard::train
