// Callbacks that report the progress of a training: summaries of its values, a line on a terminal, moving averages,
// speed, the remaining time, memory of devices. They save nothing, since speeds in checkpoints would make those of
// equal trainings differ.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/train/loop/callback.h"

namespace trainyard::train {
class LocalSteps;
class TimeShares;
}  // namespace trainyard::train

namespace trainyard::nn {
class Accelerator;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// The histograms that are written in addition to the values: of the gradients that replica 0's optimizer has used,
// without its weight decay, and of the updated parameters.
enum class SummaryHistograms {
  kNone,
  kLogGradients,  // "log_gradients": log |g| of every gradient that is not zero
  kAll,           // also "<name>/gradients" and "<name>" for each parameter
};

struct SummaryOptions {
  int64_t every_steps = 0;  // when (local step + 1) is a multiple, warm-up included; 0: off
  // Selects steps by the number of steps done over all runs. Empty: every_steps decides.
  std::function<bool(int64_t global_step)> due{};
  int64_t batch_size = 0;          // images a step, over all workers
  int64_t examples_per_epoch = 0;  // for the epoch of each row; 0: the trainer's epoch
  int64_t warmup_steps = 0;
  // The values of a row, in this order. They are read when a summary is written: {"learning_rate", ...}, {"total_loss",
  // ...}, {"loss_scale", ...}.
  std::vector<std::pair<std::string, std::function<double(const StepView&)>>> values{};
  // Images that go with a row, in the form that monitors accept (Images): {"input", [N, 3, H, W]}. Undefined ones are
  // left out.
  std::vector<std::pair<std::string, std::function<at::Tensor(const StepView&)>>> pictures{};
  // Requires a trainer whose steps have gradients.
  SummaryHistograms histograms = SummaryHistograms::kNone;
  std::function<double()> wall_clock{};  // seconds since the Unix epoch; default: the system's clock

  void validate() const;  // throws kInvalidArgument
};

// Writes the values of training to the trainer's monitors every so many steps: those of SummaryOptions::values, such as
// learning rate and loss. They are followed by images_per_second, and by input_share, compute_share,
// communication_share, waiting_share (the part of communication that was waiting for others) and update_share of the
// steps since the last summary, without what passed between them, such as evaluations. Shares are fractions of 1; on an
// accelerator only the first two exist, and a step ends where its values are read, behind callbacks added before.
class SummaryCallback : public Callback {
 public:
  explicit SummaryCallback(SummaryOptions options);

  std::string name() const override { return "summary"; }
  bool chief_only() const override { return true; }

  void before_train(Trainer& trainer) override;
  void before_step(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView& view) override;
  void after_train(Trainer& trainer) override;

 private:
  void add_late_compute(const StepView& view);
  void write_pictures(Trainer& trainer, const StepView& view, double wall_time) const;
  void write_histograms(Trainer& trainer, const StepView& view, double wall_time) const;

  SummaryOptions options_;
  std::shared_ptr<LocalSteps> local_steps_;
  std::shared_ptr<TimeShares> times_;
  std::optional<double> step_began_{};  // seconds of a steady clock; unset: before_step() was not called
};

struct ProgressOptions {
  std::string model = "training";
  std::optional<bool> enabled{};            // unset: where stderr is a terminal
  int64_t batch_size = 0;                   // images a step, over all workers; 0: no speed is shown
  int64_t examples_per_epoch = 0;           // 0: no epochs are shown
  std::function<double()> learning_rate{};  // returns that of the last step; empty: not shown
  std::function<double()> clock{};          // seconds; default: a steady clock
};

// Draws the progress line of a run on a terminal, and nothing when stderr is not a terminal
// (train/callbacks/progress_line.h).
class ProgressCallback : public Callback {
 public:
  explicit ProgressCallback(ProgressOptions options = {});

  std::string name() const override { return "progress"; }
  bool chief_only() const override { return true; }

  void before_train(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepView&) override;
  // Only clears the line, because other callbacks may still evaluate.
  void after_train(Trainer&) override { clear(); }

  // Sets the loss to show. The caller sets it, because reading it back can cost more than a step.
  void set_loss(double loss);
  // Sets the accuracy to show: that of the last evaluation.
  void set_accuracy(double accuracy);
  // Shows that training pauses: "evaluating 12/40".
  void show_evaluation(int64_t batches_done, int64_t batches);
  // Clears the line, so that other output can be written. Does nothing before a run.
  void clear();

 private:
  ProgressOptions options_;
  struct Line;
  std::shared_ptr<Line> line_;
};

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
