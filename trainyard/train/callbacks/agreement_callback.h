// Ends the trainings of several processes at the same step (parallel/process_group/rank_agreement.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "trainyard/parallel/process_group/rank_agreement.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Returns why this process wants its training to end; kNone where it does not.
[[nodiscard]] parallel::TrainingEnd requested_end(const Trainer& trainer);

// Turns stop requests of its trainer (Trainer::stop(), tokens) into proposals, and ends all trainings at the same step
// once one rank has proposed it. Add it after the callbacks that may stop the training, and before those that save: the
// other ranks wait for the callbacks before it.
class AgreementCallback : public Callback {
 public:
  // `waited` is called after each step with the seconds that this rank has waited for rank 0's word.
  explicit AgreementCallback(std::shared_ptr<parallel::RankAgreement> agreement,
                             std::function<void(double seconds)> waited = {})
      : agreement_(std::move(agreement)), waited_(std::move(waited)) {}

  std::string name() const override { return "rank_agreement"; }
  void setup(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;

 private:
  std::shared_ptr<parallel::RankAgreement> agreement_;
  std::function<void(double seconds)> waited_;
};

}  // namespace trainyard::train
