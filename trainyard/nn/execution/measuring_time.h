// What a process may spend on measuring which kernel of a layer is the fastest.
#pragma once

#include <mutex>

namespace trainyard::nn {

// Any thread may call it, several at a time.
class MeasuringTime {
 public:
  // Seconds of every process. A longer run may have more: see allow().
  static constexpr double kLeastSeconds = 4;

  // Returns that of this process, which has one machine's time to spend, however many models it builds.
  static MeasuringTime& instance();

  // Returns the seconds that a run of so many floating-point operations on so many threads may have: a fiftieth of what
  // it takes where each thread computes 300 GFLOP/s, as the fastest cores do that measure; at most a minute.
  static double seconds_of(double flops, int threads);
  // Raises what the process may spend in all to `seconds`; less than it had changes nothing.
  void allow(double seconds);
  double allowed() const;
  double left() const;  // negative: more was spent
  void spend(double seconds);

 private:
  mutable std::mutex mutex_;
  double allowed_ = kLeastSeconds, spent_ = 0;
};

}  // namespace trainyard::nn
