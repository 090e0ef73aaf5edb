#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/callbacks/summary_time.h"
#include "trainyard/train/loop/trainer.h"

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

namespace {

std::function<double()> or_steady(std::function<double()> clock) {
  return clock ? std::move(clock) : core::steady_seconds;
}

void write_scalars(Trainer& trainer, std::vector<std::pair<std::string, double>> values) {
  if (values.empty()) return;
  trainer.monitors().write({.global_step = trainer.global_step(),
                            .epoch = epoch_of(trainer, 0, 0),
                            .wall_time = system_wall_clock(),
                            .phase = "train",
                            .values = std::move(values)});
}

// Returns "1:02:03" or "2:03".
std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace

MovingAverageSummary::MovingAverageSummary(std::vector<std::string> names, double decay)
    : names_(std::move(names)), decay_(decay) {
  if (!names_.empty() && decay >= 0 && decay < 1) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "no moving average can be made so",
                                            .expected = "names, and a decay in [0, 1)",
                                            .actual = fmt::format("{} names, {}", names_.size(), decay)});
}

void MovingAverageSummary::trigger(Trainer& trainer) {
  std::vector<std::pair<std::string, double>> averages;
  for (const std::string& name : names_) {
    const MonitorSet::History& history = trainer.monitors().history(name);
    if (history.empty()) continue;
    // Values so old that they weigh less than one part in 2^60 change nothing.
    const double lasting = decay_ == 0 ? 1 : std::ceil(60 * std::log(2.0) / -std::log(decay_));
    const size_t count = std::min(history.size(), static_cast<size_t>(std::max(lasting, 1.0)));
    double average = 0, weight = 0;
    for (size_t i = history.size() - count; i < history.size(); ++i) {
      average = decay_ * average + (1 - decay_) * history[i].second;
      weight = decay_ * weight + (1 - decay_);
    }
    averages.emplace_back(name + "/moving_average", average / weight);
  }
  write_scalars(trainer, std::move(averages));
}

EstimatedTimeLeft::EstimatedTimeLeft(int64_t last_k_epochs, std::function<double()> clock)
    : last_k_epochs_(static_cast<size_t>(std::max<int64_t>(last_k_epochs, 0))), clock_(or_steady(std::move(clock))) {
  if (last_k_epochs >= 1) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "time is estimated by at least one epoch", .actual = std::to_string(last_k_epochs)});
}

void EstimatedTimeLeft::before_train(Trainer&) {
  seconds_.clear();
  seconds_left_ = 0;
  last_time_ = clock_();
}

void EstimatedTimeLeft::trigger(Trainer& trainer) {
  const double now = clock_();
  seconds_.push_back(now - last_time_);
  last_time_ = now;
  if (seconds_.size() > last_k_epochs_) seconds_.pop_front();
  std::vector<double> sorted(seconds_.begin(), seconds_.end());
  std::sort(sorted.begin(), sorted.end());
  const double median = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  seconds_left_ = median * static_cast<double>(trainer.loop().max_epoch - trainer.epoch());
  if (seconds_left_ > 0) core::log::info("estimated time left: {}", clock_text(seconds_left_));
}

ThroughputTracker::ThroughputTracker(int64_t samples_per_step, std::function<double()> clock)
    : samples_per_step_(samples_per_step), clock_(or_steady(std::move(clock))) {
  if (samples_per_step >= 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = "a step has no negative number of samples", .actual = std::to_string(samples_per_step)});
}

void ThroughputTracker::before_epoch(Trainer& trainer) {
  in_epoch_ = true;
  since_ = clock_();
  first_step_ = trainer.global_step();
}

void ThroughputTracker::after_epoch(Trainer& trainer) {
  count(trainer);
  in_epoch_ = false;
}

void ThroughputTracker::count(Trainer& trainer) {
  const double now = clock_();
  seconds_ += now - since_;
  since_ = now;
  steps_ += trainer.global_step() - first_step_;
  first_step_ = trainer.global_step();
}

void ThroughputTracker::trigger(Trainer& trainer) {
  if (in_epoch_) count(trainer);
  if (steps_ == 0 || seconds_ <= 0) return;
  const double speed = static_cast<double>(steps_) / seconds_;
  steps_ = 0;
  seconds_ = 0;
  if (samples_per_step_ > 0) {
    write_scalars(trainer, {{"samples_per_second", speed * static_cast<double>(samples_per_step_)}});
  } else {
    write_scalars(trainer, {{"steps_per_second", speed}});
  }
}

DeviceMemoryTracker::DeviceMemoryTracker(std::vector<std::shared_ptr<nn::Accelerator>> devices)
    : devices_(std::move(devices)) {}

void DeviceMemoryTracker::trigger(Trainer& trainer) {
  constexpr double kMib = 1 << 20;
  std::vector<std::pair<std::string, double>> values;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const nn::DeviceMemory memory = devices_[i]->memory();
    values.emplace_back(fmt::format("device_{}/memory_used_mib", i), static_cast<double>(memory.used) / kMib);
    values.emplace_back(fmt::format("device_{}/memory_held_mib", i), static_cast<double>(memory.held) / kMib);
  }
  write_scalars(trainer, std::move(values));
}

}  // namespace trainyard::train
