// Trains towers (train/step/tower.h) for one cost, or for several that take turns: replicas on threads, micro-steps, a
// VariableUpdate between them. One device, many devices and many processes differ only in the VariableUpdate
// (docs/design/architecture.md draws a step). A step is, for each micro-step of a cost:
//
//   next batches -> [input_pre] -> tower: forward, losses -> backward
//
// and then once:
//
//   [reduce_pre] -> reduce over replicas -> [update_pre] -> update
//
// Hooks, in brackets, run on the replica's thread and change only the data of that replica.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/train/loop/trainer.h"
#include "trainyard/train/step/tower_trainer_options.h"

namespace trainyard::train {
class ReplicatedStep;
struct RunMemory;  // train/devices/run_memory.h
class StepRecorder;
}  // namespace trainyard::train

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

// The loss scale of replica 0: the factor of the loss (OpenDevices::loss_scale).
struct LossScale {
  double scale = 1;  // of the next step
  // Steps without overflow since the scale last moved; nullopt unless it moves (LossScalerOptions::automatic).
  std::optional<double> normal_steps{};
};

// The trainer. The towers of one trainer may get batches of different sizes and shapes; their parameters must be the
// same.
//
// Custom layers in a graph draw from ATen's default generator, which the constructor seeds and which is
// saved. On more than one replica the order of its draws is that of the threads.
//
// A step that on_nan ends leaves parameters, slots and statistics as they were before it (independent replicas whose
// own numbers were finite have updated theirs), and the source one step further. This state must not be saved.
//
// A replica that throws ends the step for all: train() throws the first error with replica and step, and the trainer
// cannot train again.
//
// StepTimes: `input` is waiting for batches, `communication` waiting for other replicas and moving gradients, `update`
// the optimizer's own work, `compute` all the rest. On an accelerator `input` counts only the waiting during which the
// accelerator had no work left. A step that is recorded for a trace waits for the accelerator at its end.
class TowerTrainer : public Trainer {
 public:
  // `source` must have options.replicas replicas. Builds the replicas' executors and initialises their parameters.
  TowerTrainer(TowerTrainerOptions options, std::shared_ptr<data::BatchSource> source);
  ~TowerTrainer() override;

  const TowerTrainerOptions& options() const { return options_; }
  // Returns whether this is the process whose callbacks print and save: rank 0 of options().ranks.
  [[nodiscard]] bool is_chief() const override;
  void progress(const std::string& operation) const override;
  // Returns the parameters that are saved, evaluated and exported.
  nn::ParameterSet& parameters();
  // Calls `change` with each replica's copy of the parameters, once if they share one. Use it to change values or to
  // set masks outside of a step. Equal copies must be equal afterwards. Call it before or after train(), or in a
  // callback between steps.
  void change_parameters(const std::function<void(nn::ParameterSet&)>& change);
  // Copies the variables of replica 0 of rank 0 to all other replicas: values, statistics, slots of the optimizer.
  // Replicas that began differently are equal from then on. Call it in a callback between steps; it is collective over
  // processes. Throws kUnsupported with the variable update "asynchronous".
  void broadcast();
  // Returns the average of the weights; null without options().average. Its weights() may be read between steps, on
  // accelerators after wait().
  [[nodiscard]] const optim::WeightAverage* average() const;
  // Calls the tower function once more, for inference on parameters(), and returns the step: it may run between steps,
  // on the thread that calls it, as long as the trainer lives. Calls after the first return the same.
  const TowerStep& inference_tower();
  data::BatchSource& source() { return *source_; }
  // Returns the first cost's learning rate in the last step, or in the next one before the first step.
  [[nodiscard]] double current_learning_rate() const;
  // Returns the replicas' mean of the first cost in the last step, before its update, with the regularization of its
  // optimizer. Reads it back, which waits for the device. Not a number before the first step.
  [[nodiscard]] double last_total_loss() const;
  // Returns the same without the regularization.
  [[nodiscard]] double last_base_loss() const;
  // Returns the loss scale of the next step; nullopt without OpenDevices::loss_scale. Waits for the device.
  [[nodiscard]] std::optional<LossScale> loss_scale() const;

  // Returns how many steps of this trainer were skipped because a loss or a gradient was not finite: on some replica,
  // where each decides for itself. Those that an automatic loss scale skips are not counted.
  [[nodiscard]] int64_t skipped_steps() const;

  // Freezes (false) or thaws the parameters that `pattern` names (core::matches_pattern), on all replicas from the next
  // step on: "layer1.*". A frozen parameter and its slots keep their bits, a batch norm whose parameters are all frozen
  // uses its statistics and keeps them, and the backward stops where nothing below trains. Saved with the run. Call it
  // between steps; where several processes train together, each must do the same. Throws kNotFound, with names that are
  // near, when there is no such parameter, kUnsupported on accelerators.
  void set_trainable(const std::string& pattern, bool trainable) override;
  // Returns the names of the parameters that are frozen, by segment.
  [[nodiscard]] std::vector<std::string> frozen_parameters() override;

  // Makes the steps from the next one on write what they do into `recorder`, which has options().replicas replicas and
  // outlives them. Null ends it. Call it between steps.
  void record(StepRecorder* recorder);

  // Blocks until the devices have done the replicas' work and exchanges, and throws their errors. Call it between
  // steps, before reading parameters(), except in save().
  void wait();

  // Returns the memory that the run needs, as it was logged before its first step; nullopt before that.
  const std::optional<RunMemory>& memory() const;

  friend RunMemory plan_memory(TowerTrainer& trainer, int64_t batch);

  // Saves the trainer's own state, and "model/...", "optimizer/...", "input/epoch", "input/offset", "random/aten_cpu",
  // "kernels/choices", "loss_scaler/...", "average/..." where there is one, "trainer/frozen" where a parameter is. A
  // checkpoint without kernels, a loss scaler or an average lets the run begin with new ones; an average that this run
  // does not continue is left out. Both are warned of.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  void run_step(StepView& view) override;
  std::optional<std::string> end_before_step() override;
  void begin_training() override;
  void end_training() override;

 private:
  TowerTrainerOptions options_;
  std::shared_ptr<data::BatchSource> source_;
  std::unique_ptr<ReplicatedStep> step_;
};

// Returns the memory that the run of `trainer` would need with batches of this many images per device. The part of the
// program and the input is 0, and that of executors which do not plan their memory is missing. Allocates no memory for
// activations. Call it outside of train(). Kernels are chosen as for a step: with ConvolutionPolicy::kAuto they are
// measured.
[[nodiscard]] RunMemory plan_memory(TowerTrainer& trainer, int64_t batch);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
