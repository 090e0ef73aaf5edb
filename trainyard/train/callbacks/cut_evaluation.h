// Remembers that a stop has cut off the evaluation after a step, or has left no time for it. This is saved with the
// run, so that the run that continues it repeats the evaluation. All ranks of a training have a part in each
// evaluation, so they end at the same step where one of them is stopped in it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/process_group/rank_agreement.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Add it before the trainer loads its state.
class CutEvaluation : public Callback {
 public:
  std::string name() const override { return "cut_evaluation"; }

  // Sets the ranks that train together. Null: this process is alone.
  void set_ranks(std::shared_ptr<parallel::ProcessGroup> ranks) { ranks_ = std::move(ranks); }

  // Returns whether the evaluation after the last step is missing.
  bool missing() const { return missing_; }
  void set_missing(bool missing) { missing_ = missing; }

  // Collective: a stop has cut off the evaluation after the last step, on all ranks. Ends their trainings at this step.
  void cut_off(Trainer& trainer);
  // Collective, before the first step of a train(): an evaluation of an earlier one was repeated, or was cut off again.
  // Ends the trainings of all ranks where one of them was stopped by its result or meanwhile.
  void end_repetition(Trainer& trainer);
  // Lets the deadline of the start count again, because the first step comes next. end_repetition() does so; call it
  // where an evaluation was repeated in front of train(), which agrees on an end itself.
  void expect_first_step() const;
  // Returns why the evaluation was cut off in the last train(), the same on all ranks; kNone where it was not.
  const parallel::TrainingEnd& end() const { return end_; }
  // Returns whether it is missing because a signal of this process or of another rank has ended the last train().
  bool by_signal() const { return missing_ && end_.why == core::StopReason::kSignal; }
  // Returns whether the state that was last saved or loaded says something else.
  bool changed() const { return saved_ != missing_; }

  void before_train(Trainer&) override { end_ = {}; }
  void before_step(Trainer&) override { missing_ = false; }  // what is missing is of the step before
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  // Ends the trainings of all ranks where one of them is to end, and returns why.
  parallel::TrainingEnd end_together(Trainer& trainer) const;

  std::shared_ptr<parallel::ProcessGroup> ranks_;
  bool missing_ = false;
  mutable bool saved_ = false;
  parallel::TrainingEnd end_;
};

}  // namespace trainyard::train
