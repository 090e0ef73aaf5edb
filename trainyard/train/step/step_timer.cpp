#include "trainyard/train/step/step_timer.h"

#include <utility>

namespace trainyard::train {

void StepTimer::begin(const CommunicationSeconds& communication, bool idle) {
  begin_ = Clock::now();
  communication_before_ = communication;
  counted_ahead_ = std::exchange(ahead_, 0);
  input_ = idle ? counted_ahead_ : 0;
  update_ = 0;
}

StepTimes StepTimer::end(const CommunicationSeconds& communication, int replicas, bool on_accelerator) const {
  const Clock::time_point now = Clock::now();
  StepTimes times;
  times.total = counted_ahead_ + core::seconds_between(begin_, now);
  times.input = input_;
  times.on_accelerator = on_accelerator;
  if (on_accelerator) {
    times.compute = times.total - times.input;
    return times;
  }
  times.update = update_;
  times.communication = communication.total - communication_before_.total;
  times.waiting = communication.waiting - communication_before_.waiting;
  if (replicas > 1) {
    // Replica 0 has done its part, and the trainer waits for the others.
    const double after = core::seconds_between(replica_0_done_, now);
    times.communication += after;
    times.waiting += after;
  }
  times.compute = times.total - times.input - times.update - times.communication;
  return times;
}

}  // namespace trainyard::train
