// Measures which stages the input threads spend their time on.
//
//   {
//     StageTimer timer(Stage::kRead);
//     record = dataset.read(i);
//   }
//   total += take_stage_seconds();
#pragma once

#include <array>
#include <string_view>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

enum class Stage { kRead, kDecode, kResize, kAugment, kMix, kCollate, kWait };
inline constexpr int kStages = 7;
std::string_view stage_name(Stage stage);  // "read", ...

struct StageSeconds {
  std::array<double, kStages> seconds{};

  double& operator[](Stage stage) { return seconds[static_cast<int>(stage)]; }
  double operator[](Stage stage) const { return seconds[static_cast<int>(stage)]; }
  StageSeconds& operator+=(const StageSeconds& other);
  StageSeconds operator-(const StageSeconds& other) const;
  double sum() const;
};

// Counts the calling thread's time for `stage` while it lives, except for the time of timers inside it. Costs two
// readings of the clock: 50 ns.
class StageTimer {
 public:
  explicit StageTimer(Stage stage);
  ~StageTimer();
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  int outer_;
};

// Returns what the calling thread's timers have counted since the last call. Timers that still run count up to now.
[[nodiscard]] StageSeconds take_stage_seconds();

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
