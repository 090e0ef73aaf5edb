#include "trainyard/data/base/stage_times.h"

#include <chrono>
#include <numeric>
#include <utility>

#include "trainyard/core/base/elapsed.h"

namespace trainyard::data {
namespace {

constexpr int kNone = -1;

// The timers of one thread.
struct Clock {
  StageSeconds counted;
  int stage = kNone;
  std::chrono::steady_clock::time_point since;

  // Counts up to now, then for `next`; returns what it counted for.
  int change_to(int next) {
    const auto now = std::chrono::steady_clock::now();
    if (stage != kNone) counted.seconds[stage] += core::seconds_between(since, now);
    since = now;
    return std::exchange(stage, next);
  }
};

Clock& clock() {
  static thread_local Clock of_thread;
  return of_thread;
}

}  // namespace

std::string_view stage_name(Stage stage) {
  static constexpr std::array<std::string_view, kStages> kNames = {"read", "decode",  "resize", "augment",
                                                                   "mix",  "collate", "wait"};
  return kNames[static_cast<int>(stage)];
}

StageSeconds& StageSeconds::operator+=(const StageSeconds& other) {
  for (int i = 0; i < kStages; ++i) seconds[i] += other.seconds[i];
  return *this;
}

StageSeconds StageSeconds::operator-(const StageSeconds& other) const {
  StageSeconds result;
  for (int i = 0; i < kStages; ++i) result.seconds[i] = seconds[i] - other.seconds[i];
  return result;
}

double StageSeconds::sum() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

StageTimer::StageTimer(Stage stage) : outer_(clock().change_to(static_cast<int>(stage))) {}

StageTimer::~StageTimer() {
  clock().change_to(outer_);
}

StageSeconds take_stage_seconds() {
  clock().change_to(clock().stage);
  return std::exchange(clock().counted, {});
}

}  // namespace trainyard::data
