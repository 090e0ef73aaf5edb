// Ends the trainings of several processes at the same step (parallel/process_group/rank_agreement.h).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "trainyard/parallel/process_group/rank_agreement.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Turns stop requests of its trainer (Trainer::stop(), tokens) into proposals, and ends all trainings at the same step
// once one rank has proposed it. Add it after the callbacks that may stop the training, and before those that save: the
// other ranks wait for the callbacks before it.
class AgreementCallback : public Callback {
 public:
  explicit AgreementCallback(std::shared_ptr<parallel::RankAgreement> agreement) : agreement_(std::move(agreement)) {}

  std::string name() const override { return "rank_agreement"; }
  void setup(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;

 private:
  std::shared_ptr<parallel::RankAgreement> agreement_;
};

}  // namespace trainyard::train
