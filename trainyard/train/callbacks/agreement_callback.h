// Ends the trainings of several processes at the same step (parallel/nccl/rank_agreement.h).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "trainyard/core/base/export.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/parallel/nccl/rank_agreement.h"
#include "trainyard/train/loop/callback.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Stands in the place of the trainer's own look at `stop`. Add it last, behind what may ask for the end.
class AgreementCallback : public Callback {
 public:
  AgreementCallback(std::shared_ptr<parallel::RankAgreement> agreement, core::StopToken stop)
      : agreement_(std::move(agreement)), stop_(std::move(stop)) {}

  std::string name() const override { return "rank_agreement"; }
  void after_step(Trainer& trainer, const StepView& view) override;

 private:
  std::shared_ptr<parallel::RankAgreement> agreement_;
  core::StopToken stop_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
