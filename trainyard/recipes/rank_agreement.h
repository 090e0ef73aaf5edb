// Keeps the processes of a training at the same steps: rank 0 says after each step whether there is a next one, so that
// a signal, which reaches them at different moments, ends all of them at the same step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "trainyard/core/threads/stop_token.h"
#include "trainyard/parallel/nccl/rendezvous.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::recipes {

// In the place of the trainer's own look at `stop`. Add it last.
class RankAgreement : public train::Callback {
 public:
  RankAgreement(std::shared_ptr<parallel::Rendezvous> processes, core::StopToken stop)
      : processes_(std::move(processes)), stop_(std::move(stop)) {}

  // Collective, before the training. Throws kInvalidArgument where ranks go on from different steps.
  void require_same_start(int64_t global_step);

  std::string name() const override { return "rank_agreement"; }
  void after_step(train::Trainer& trainer, const train::StepView& view) override;

 private:
  // Why this process wants the end; empty: it does not.
  std::string wish(const train::Trainer& trainer) const;

  std::shared_ptr<parallel::Rendezvous> processes_;
  core::StopToken stop_;
  bool told_ = false;
};

}  // namespace trainyard::recipes
