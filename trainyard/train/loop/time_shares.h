// Measures which part of a step limits the run: shares of the time of all steps since the last reset.
#pragma once

#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

class TimeShares {
 public:
  void add(const StepTimes& times) {
    sum_.total += times.total;
    sum_.input += times.input;
    sum_.compute += times.compute;
    sum_.communication += times.communication;
    sum_.update += times.update;
    sum_.waiting += times.waiting;
    sum_.on_accelerator = times.on_accelerator;
    ++steps_;
  }
  // Adds seconds after a step in which other ranks were waited for.
  void add_waiting(double seconds) {
    sum_.total += seconds;
    sum_.communication += seconds;
    sum_.waiting += seconds;
  }
  // Adds seconds after a step in which its accelerator was waited for.
  void add_late_compute(double seconds) {
    sum_.total += seconds;
    sum_.compute += seconds;
  }
  void reset() { *this = TimeShares(); }

  int64_t steps() const { return steps_; }
  // Returns the sums in seconds.
  const StepTimes& sum() const { return sum_; }
  // Returns each part divided by the total, which itself becomes 1. All are 0 when no time has passed.
  [[nodiscard]] StepTimes shares() const {
    if (sum_.total <= 0) return {};
    return {1,
            sum_.input / sum_.total,
            sum_.compute / sum_.total,
            sum_.communication / sum_.total,
            sum_.update / sum_.total,
            sum_.on_accelerator,
            sum_.waiting / sum_.total};
  }

 private:
  StepTimes sum_;
  int64_t steps_ = 0;
};

}  // namespace trainyard::train
