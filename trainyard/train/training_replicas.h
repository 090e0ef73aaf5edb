// The replicas of a SingleCostTrainer: executors, gradient sinks and threads, and one step over all of them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "trainyard/optim/l2_loss.h"
#include "trainyard/optim/loss_scaler.h"
#include "trainyard/optim/step_state.h"
#include "trainyard/train/device_step.h"
#include "trainyard/train/replica_threads.h"
#include "trainyard/train/single_cost_trainer.h"
#include "trainyard/train/step_recorder.h"

namespace trainyard::train {

class SingleCostTrainer::Replicas {
 public:
  // `options` must outlive it.
  explicit Replicas(const SingleCostOptions& options);

  void start(int intra_op_threads_each);
  void end() { threads_.reset(); }

  // Of the steps from the next one on; null: nobody's.
  void record(StepRecorder* recorder);

  // view.global_step is given; the rest is filled.
  void run_step(data::BatchSource& source, StepView& view);

  parallel::VariableUpdate& update() const { return *update_; }
  std::optional<double> last_learning_rate() const { return last_learning_rate_; }
  const std::optional<RunMemory>& memory() const { return memory_; }
  double base_loss() const;
  double l2_loss() const;
  std::optional<optim::LossScaler>& loss_scaler() { return loss_scaler_; }
  std::optional<double> loss_scale() const;
  // The calling thread's work goes to the accelerator as long as the result lives; null without one.
  std::shared_ptr<void> use_device() const;

 private:
  // Values and gradients, which the main thread has allocated, to the nodes of the placement.
  void move_to_nodes() const;
  using Clock = std::chrono::steady_clock;

  struct Replica {
    std::unique_ptr<nn::GradientSink> sink;
    std::unique_ptr<nn::Executor> executor;
    ReplicaView view;
  };

  ThreadRecord* record_of(int replica) const { return recorder_ == nullptr ? nullptr : &recorder_->replica(replica); }
  std::vector<data::Batch> next_batches(data::BatchSource& source) const;
  // Before the first step: compiles, lets all ranks choose the kernels that the first one chose, logs the memory.
  void prepare(int64_t batch);
  RunMemory measure_memory(const std::vector<std::optional<nn::ExecutorMemory>>& executors) const;
  DeviceStep::Options device_step_options(const data::Batch& batch) const;
  void run_micro_step(int replica, int64_t step, int micro_step, const data::Batch& batch);
  void forward_backward(int replica, int64_t step, int micro_step, data::Batch batch);
  void reduce_and_update(int replica);

  const SingleCostOptions& options_;
  std::unique_ptr<parallel::VariableUpdate> update_;
  std::vector<Replica> replicas_;
  optim::StepState state_;
  std::optional<double> last_learning_rate_;
  std::optional<RunMemory> memory_;            // once prepared
  std::optional<optim::L2Loss> l2_of_values_;  // with weight decay
  at::Tensor l2_loss_;                         // [] float64 of the values before the last update
  std::optional<optim::LossScaler> loss_scaler_;
  std::optional<DeviceStep> device_step_;  // on an accelerator, from the first step on
  // What a captured step writes, which steps that are not replayed put other tensors in the place of.
  struct Recorded {
    ReplicaView view;
    at::Tensor l2_loss;
  };
  Recorded recorded_;
  // Of replica 0, written by its thread and read when all have met.
  double update_seconds_ = 0;
  Clock::time_point replica_0_done_;
  StepRecorder* recorder_ = nullptr;
  std::unique_ptr<ReplicaThreads> threads_;
};

}  // namespace trainyard::train
