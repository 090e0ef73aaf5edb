#include "trainyard/nn/execution/measuring_time.h"

#include <algorithm>

namespace trainyard::nn {

MeasuringTime& MeasuringTime::instance() {
  static MeasuringTime time;
  return time;
}

double MeasuringTime::seconds_of(double flops, int threads) {
  constexpr double kThreadFlops = 3e11, kPart = 0.02, kMostSeconds = 60;
  return std::min(kPart * flops / (kThreadFlops * std::max(threads, 1)), kMostSeconds);
}

void MeasuringTime::allow(double seconds) {
  const std::lock_guard lock(mutex_);
  allowed_ = std::max(allowed_, seconds);
}

double MeasuringTime::allowed() const {
  const std::lock_guard lock(mutex_);
  return allowed_;
}

double MeasuringTime::left() const {
  const std::lock_guard lock(mutex_);
  return allowed_ - spent_;
}

void MeasuringTime::spend(double seconds) {
  const std::lock_guard lock(mutex_);
  spent_ += seconds;
}

}  // namespace trainyard::nn
