// Runs one step of a TowerTrainer on all its replicas: input, the passes of each replica (train/step/replica_pass.h),
// and the checks after them. tower_trainer.h shows the order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainyard/train/step/device_steps.h"
#include "trainyard/train/step/loss_scales.h"
#include "trainyard/train/step/memory_forecast.h"
#include "trainyard/train/step/non_finite_steps.h"
#include "trainyard/train/step/replica_pass.h"
#include "trainyard/train/step/sharpness_aware_pass.h"
#include "trainyard/train/step/step_hyperparameters.h"
#include "trainyard/train/step/step_input.h"
#include "trainyard/train/step/step_timer.h"

namespace trainyard::train {

class ReplicatedStep {
 public:
  // All must outlive it.
  ReplicatedStep(const TowerTrainerOptions& options, const optim::Hyperparameters& hyperparameters,
                 data::BatchSource& source);
  ReplicatedStep(const ReplicatedStep&) = delete;
  ReplicatedStep& operator=(const ReplicatedStep&) = delete;

  // Starts the replicas' threads.
  void start(int intra_op_threads_each) { replicas_.start(intra_op_threads_each); }
  // Ends the replicas' threads. Throws errors of the devices that occurred after the last step returned.
  void end();
  // Takes the batches of the next step, as StepInput::take_ahead().
  bool take_batches(int64_t step);
  // Runs one step with the current values of the hyperparameters. view.global_step is set by the caller; the rest is
  // set here.
  void run(StepView& view);

  // Reads the average's state, or begins a new average if the checkpoint has none.
  void load_average(const core::StateReader& reader);
  // Returns the regularization's part of the last step's loss. Waits for the device.
  double l2_loss() const;

  ReplicaSet& replicas() { return replicas_; }
  optim::WeightAverage* average() const { return pass_.average(); }
  LossScales& loss_scales() { return loss_scales_; }
  MemoryForecast& memory() { return *memory_; }
  int64_t skipped_steps() const { return non_finite_.skipped_steps(); }

 private:
  // Returns the batches of the next micro-step, one a replica.
  std::vector<data::Batch> next_batches();
  void run_micro_step(int r, int micro_step, const data::Batch& batch);
  // Returns whether the devices have no work left while the host waits for input.
  bool input_holds_back() const { return replicas_.on_cpu() || replicas_.accelerator(0)->idle(); }

  const TowerTrainerOptions& options_;
  ReplicaSet replicas_;
  StepTimer timer_;
  NanGuard nan_guard_;
  StepInput input_;
  StepHyperparameters hyperparameters_;
  ReplicaPass pass_;
  LossScales loss_scales_;
  NonFiniteSteps non_finite_;
  std::optional<SharpnessAwarePass> second_pass_;  // with TowerTrainerOptions::sharpness_aware
  std::optional<MemoryForecast> memory_;           // always, after construction
  std::optional<DeviceSteps> device_steps_;        // always, after construction
  bool in_step_ = false;                           // also after one that threw
};

}  // namespace trainyard::train
