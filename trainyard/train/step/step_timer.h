// Where the time of a step goes: what StepTimes says of it.
#pragma once

#include <chrono>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {

// Seconds of replica 0 so far.
struct CommunicationSeconds {
  double total = 0;    // waiting for others, and moving numbers
  double waiting = 0;  // of these: until all others had come
};

class StepTimer {
 public:
  using Clock = std::chrono::steady_clock;

  // On the trainer's thread. Seconds that were spent before the step, on its input, are added to the next begin().
  void add_input_ahead(double seconds) { ahead_ = seconds; }
  // Input that was fetched ahead counts as waiting where the device was idle.
  void begin(const CommunicationSeconds& communication, bool idle);
  void add_input(double seconds) { input_ += seconds; }

  // On replica 0's thread.
  void end_update(Clock::time_point begin, double communication_seconds = 0) {
    replica_0_done_ = Clock::now();
    update_ += core::seconds_between(begin, replica_0_done_) - communication_seconds;
  }
  // The host's time of a recorded step is no update, and a replay has it within.
  void forget_update() { update_ = 0; }
  void end_replica_0() { replica_0_done_ = Clock::now(); }

  // Returns the times of the step that ends now. After all replicas have met.
  StepTimes end(const CommunicationSeconds& communication, int replicas, bool on_accelerator) const;

 private:
  Clock::time_point begin_, replica_0_done_;
  double ahead_ = 0;          // before the next begin()
  double counted_ahead_ = 0;  // of this step
  double input_ = 0;
  // Seconds that replica 0 spent in its updates of this step. Written by its thread; read after all replicas have met.
  double update_ = 0;
  CommunicationSeconds communication_before_;
};

}  // namespace trainyard::train
