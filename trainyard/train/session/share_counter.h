// Sums up the times of a run's steps by their parts, for its summary.
#pragma once

#include <string>
#include <utility>

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
    counts_ = local_steps_.of(view) >= 0;
    if (!counts_) return;
    shares_.add(view.times);
    recent_.add(view.times);
  }
  // Adds seconds after the last step in which this rank waited for others.
  void add_waiting(double seconds) {
    if (!counts_) return;
    shares_.add_waiting(seconds);
    recent_.add_waiting(seconds);
  }
  const TimeShares& shares() const { return shares_; }
  // Returns the times since the last call.
  TimeShares take_recent() { return std::exchange(recent_, TimeShares()); }

 private:
  LocalSteps local_steps_;
  bool counts_ = false;  // the last step
  TimeShares shares_, recent_;
};

}  // namespace trainyard::train
