// Callbacks that report the progress of a training: moving averages, speed, the remaining time, memory of devices. They
// save nothing, since speeds in checkpoints would make those of equal trainings differ.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::nn {
class Accelerator;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// Writes "<name>/moving_average" of scalars of the monitors when it is triggered: the exponential moving average of all
// values so far, with the correction for its start at zero (Kingma and Ba 2014, section 3). A resumed run continues the
// average when MonitorSet::keep() saves the values, else it restarts it.
class MovingAverageSummary : public Callback {
 public:
  // `names` are those of MonitorSet::history(). Throws kInvalidArgument for an empty list, and for a decay outside of
  // [0, 1).
  explicit MovingAverageSummary(std::vector<std::string> names, double decay = 0.95);

  std::string name() const override { return "moving_average_summary"; }
  void trigger(Trainer& trainer) override;

 private:
  std::vector<std::string> names_;
  double decay_;
};

// Logs after each epoch how long the rest will take, by the median seconds of the last epochs.
class EstimatedTimeLeft : public Callback {
 public:
  // Throws kInvalidArgument for less than one epoch. The clock returns seconds; default: a steady clock.
  explicit EstimatedTimeLeft(int64_t last_k_epochs = 5, std::function<double()> clock = {});

  std::string name() const override { return "estimated_time_left"; }
  bool chief_only() const override { return true; }
  void before_train(Trainer& trainer) override;
  void trigger(Trainer& trainer) override;

  // Returns the seconds that were logged last, 0 before the first epoch has ended.
  [[nodiscard]] double seconds_left() const { return seconds_left_; }

 private:
  size_t last_k_epochs_;
  std::function<double()> clock_;
  double last_time_ = 0;
  std::deque<double> seconds_;  // seconds of the last epochs
  double seconds_left_ = 0;
};

// Writes "samples_per_second" when it is triggered, for the steps since the last time, or "steps_per_second" when the
// number of samples is not known. The time of callbacks between epochs does not count.
class ThroughputTracker : public Callback {
 public:
  // `samples_per_step` counts all replicas and ranks; 0: steps are counted.
  explicit ThroughputTracker(int64_t samples_per_step = 0, std::function<double()> clock = {});

  std::string name() const override { return "throughput_tracker"; }
  bool chief_only() const override { return true; }
  void before_epoch(Trainer& trainer) override;
  void after_epoch(Trainer& trainer) override;
  void trigger(Trainer& trainer) override;

 private:
  void count(Trainer& trainer);

  int64_t samples_per_step_;
  std::function<double()> clock_;
  bool in_epoch_ = false;
  double since_ = 0, seconds_ = 0;
  int64_t first_step_ = 0, steps_ = 0;
};

// Writes "device_<i>/memory_used_mib" (in tensors) and "device_<i>/memory_held_mib" (by this process) when it is
// triggered. It does not measure utilization: `trainyard train --trace_file` shows that.
class DeviceMemoryTracker : public Callback {
 public:
  explicit DeviceMemoryTracker(std::vector<std::shared_ptr<nn::Accelerator>> devices);

  std::string name() const override { return "device_memory_tracker"; }
  bool chief_only() const override { return true; }
  void trigger(Trainer& trainer) override;

 private:
  std::vector<std::shared_ptr<nn::Accelerator>> devices_;
};

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
