#include "trainyard/train/session/slow_rank_callback.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trainyard/core/base/log.h"
#include "trainyard/train/callbacks/run_summary.h"
#include "trainyard/train/loop/rank_times.h"

namespace trainyard::train {

SlowRankCallback::SlowRankCallback(std::shared_ptr<parallel::ProcessGroup> ranks, std::shared_ptr<ShareCounter> counter)
    : ranks_(std::move(ranks)), counter_(std::move(counter)) {}

void SlowRankCallback::after_step(Trainer&, const StepView&) {
  constexpr int64_t kMostSteps = 1024;
  if (counter_->shares().steps() < next_) return;
  next_ += std::min(next_, kMostSteps);
  const TimeShares own = counter_->take_recent();
  const std::vector<StepTimes> all = gather_times(*ranks_, own.sum());
  const int slowest = slowest_rank(all);
  if (ranks_->rank() != 0 || slowest == named_) return;
  const auto warning = slow_rank_warning(all, own.steps());
  if (!warning) return;
  named_ = slowest;  // once is enough, until another one is slow
  core::log::warning("{}", *warning);
}

}  // namespace trainyard::train
