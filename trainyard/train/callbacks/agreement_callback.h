// Ends the trainings of several processes at the same step (parallel/process_group/rank_agreement.h).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "trainyard/parallel/process_group/rank_agreement.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Makes what stops its trainer (Trainer::stop(), tokens) a wish, and ends the trainings when one rank has had one. Add
// it behind what may ask for the end, and in front of what saves: the other ranks wait for what stands before it.
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
