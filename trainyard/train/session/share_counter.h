// Sums up the times of a run's steps by their parts, for its summary.
#pragma once

#include <string>

#include "trainyard/train/loop/callback.h"
#include "trainyard/train/loop/local_steps.h"
#include "trainyard/train/loop/time_shares.h"

namespace trainyard::train {

// Counts the steps after the warm-up.
class ShareCounter : public Callback {
 public:
  explicit ShareCounter(int64_t warmup_steps) : local_steps_(warmup_steps) {}
  std::string name() const override { return "share_counter"; }
  void before_train(Trainer& trainer) override { local_steps_.begin(trainer); }
  void after_step(Trainer&, const StepView& view) override {
    if (local_steps_.of(view) >= 0) shares_.add(view.times);
  }
  const TimeShares& shares() const { return shares_; }

 private:
  LocalSteps local_steps_;
  TimeShares shares_;
};

}  // namespace trainyard::train
