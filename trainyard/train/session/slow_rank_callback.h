// Warns, on rank 0, of a rank that keeps the others waiting. The ranks exchange their times after 16 steps, then after
// twice as many each time, and at the latest after 1024: a message each, which costs a step nothing in between.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/session/share_counter.h"

namespace trainyard::train {

// Collective: all ranks add it, after the counter.
class SlowRankCallback : public Callback {
 public:
  SlowRankCallback(std::shared_ptr<parallel::ProcessGroup> ranks, std::shared_ptr<ShareCounter> counter);

  std::string name() const override { return "slow_rank"; }
  void after_step(Trainer& trainer, const StepView& view) override;

 private:
  const std::shared_ptr<parallel::ProcessGroup> ranks_;
  const std::shared_ptr<ShareCounter> counter_;
  int64_t next_ = 16;  // counted steps until the ranks exchange their times
  int named_ = -1;     // the rank of the last warning
};

}  // namespace trainyard::train
