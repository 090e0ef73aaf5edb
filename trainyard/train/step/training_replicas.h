// The replicas of a TowerTrainer: executors, gradient sinks and threads, and one step over all of them.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/nn/execution/sync_batch_norm.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/optim/scaling/loss_scaler.h"
#include "trainyard/optim/step/step_state.h"
#include "trainyard/train/devices/run_memory.h"
#include "trainyard/train/profile/step_recorder.h"
#include "trainyard/train/step/device_step.h"
#include "trainyard/train/step/nan_guard.h"
#include "trainyard/train/step/replica_threads.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

// Returns true where gradients are exchanged, between replicas or with other processes.
bool exchange_gradients(const TowerTrainerOptions& options);
// Returns true where ATen's default generator is part of the run: custom layers and towers draw from it.
bool draws_from_aten(const TowerTrainerOptions& options);

class TowerTrainer::Replicas {
 public:
  // `options` must outlive it.
  Replicas(const TowerTrainerOptions& options, const optim::Hyperparameters& hyperparameters);

  void start(int intra_op_threads_each);
  // Ends the threads. Throws what went wrong on devices after the last step returned.
  void end();

  // Records the steps from the next one on; null ends it.
  void record(StepRecorder* recorder);

  // Takes the batches of all micro-steps of the next step, which is the global step `step`. Returns false where the
  // input ends before it has a batch for each replica; what it had of them is left out.
  bool take_batches(data::BatchSource& source, int64_t step);
  // Does one step with the values that `hyperparameters` have now. view.global_step is given; the rest is filled.
  void run_step(data::BatchSource& source, const optim::Hyperparameters& hyperparameters, StepView& view);

  parallel::VariableUpdate& update() const { return *update_; }
  const optim::WeightAverage* average() const { return average_.get(); }
  const TowerStep& inference_tower();
  const std::optional<RunMemory>& memory() const { return memory_; }
  // TowerTrainer::plan_memory(), between start() and end().
  RunMemory plan_memory(int64_t batch);
  double base_loss() const;
  double l2_loss() const;
  std::optional<double> loss_scale() const;
  std::optional<double> loss_scale_normal_steps() const;
  int64_t skipped_steps() const { return skipped_steps_; }
  // Saves replica 0's loss scale, and gives it to all replicas on loading. Where replicas exchange no gradients, saves
  // those of the others behind "replica/<r>/", too. A state without one leaves them as they are.
  void save_loss_scale(core::StateWriter& writer) const;
  void load_loss_scale(const core::StateReader& reader);
  // Reads the average's state, or begins with a new one where there is none.
  void load_average(const core::StateReader& reader);
  // Rounds what replica `r` updates to TowerTrainerOptions::devices.variables_as, if it is set. After whoever has
  // changed values.
  void round_variables(int r);
  void round_all_variables();
  // Makes the calling thread's work go to the accelerators as long as the result lives, that of replica 0 being the
  // current one.
  nn::AcceleratorScope use_devices() const { return nn::use_all(options_.devices.accelerators); }

 private:
  // Moves values and gradients, which the main thread has allocated, to the nodes of the placement.
  void move_to_nodes() const;
  using Clock = std::chrono::steady_clock;

  // What a captured step writes. Steps that are not replayed put other tensors in its place.
  struct Recorded {
    ReplicaView view;
    at::Tensor l2_loss;
  };
  struct Replica {
    std::unique_ptr<nn::SyncBatchNorm> sync_batch_norm;  // null: batch norms see the own batch alone
    std::unique_ptr<nn::GradientSink> sink;
    bool gradients_leave = false;  // in the backward that runs: as they become complete, before reduce()
    bool searching = false;        // in run_again(), which exchanges nothing
    std::unique_ptr<TowerContext> tower;
    TowerStep step;
    ReplicaView view;
    std::vector<data::Batch> batches;  // of this step's micro-steps, where a search may need them
    optim::StepState state;
    // Those that exchange gradients all see the same ones, and so scale alike.
    std::optional<optim::LossScaler> loss_scaler;
    // Wraps the optimizer that updates this replica's parameters; empty where another replica's does.
    std::optional<optim::SharpnessAware> sharpness;
    std::vector<at::Tensor> statistics;     // buffers after the first of two passes
    ReplicaView first_view;                 // of that pass
    std::optional<DeviceStep> device_step;  // on an accelerator, from the first step on
    Recorded recorded;
  };

  bool on_cpu() const { return options_.devices.accelerators.empty(); }
  nn::Accelerator* accelerator(int replica) const {
    return on_cpu() ? nullptr : options_.devices.accelerators[static_cast<size_t>(replica)].get();
  }
  // Does the same as use_devices() for one replica.
  nn::AcceleratorScope use(int replica) const {
    return on_cpu() ? nn::AcceleratorScope() : accelerator(replica)->use();
  }
  ThreadRecord* record_of(int replica) const { return recorder_ == nullptr ? nullptr : &recorder_->replica(replica); }
  const CostOptions& cost() const { return costs_[cost_]; }
  // Connects batch norms across replicas, when sync_batch_norm is set and there are several replicas.
  void exchange_statistics();
  // Seconds that replica 0 has spent waiting for others and moving numbers.
  double communication_seconds() const;
  // Wakes the replicas that wait for a failed one, with its error.
  void abort(const core::Error& error) const;
  // Gives the optimizers the values that have changed. Throws where all parameters are frozen.
  void obey(const optim::Hyperparameters& hyperparameters);
  void report_l2_loss();
  void require_trainable() const;
  // Returns the mean over micro-steps of the loss that is lowered now.
  at::Tensor loss_of_cost(const Replica& replica) const {
    return cost().loss.empty() ? replica.view.loss() : replica.view.losses[cost().loss];
  }
  // Returns the next batches: those that take_batches() has taken, else those of the source.
  std::vector<data::Batch> next_batches(data::BatchSource& source);
  // Returns whether there is a batch to train on for each replica.
  [[nodiscard]] bool complete(const std::vector<data::Batch>& batches) const;
  // Compiles before the first step, lets all ranks choose the kernels that the first one chose, and logs the memory.
  void prepare(const std::vector<data::Batch>& batches);
  // Compiles what replica `r` runs for batches of `samples`, on its thread. Returns what each of its executors takes.
  std::vector<std::optional<nn::ExecutorMemory>> compile(int r, int64_t samples);
  // Sets the observer of the nodes that run; null: none.
  static void observe(const Replica& replica, nn::NodeObserver* observer);
  RunMemory measure_memory(const std::vector<std::optional<nn::ExecutorMemory>>& executors) const;
  DeviceStep::Options device_step_options(int replica, const data::Batch& batch) const;
  void run_micro_step(int replica, int64_t step, int micro_step, const data::Batch& batch);
  void run_on_device(int replica, const data::Batch& batch, const std::function<void(const data::Batch&)>& work);
  void forward_backward(int replica, int64_t step, int micro_step, data::Batch batch);
  // Lets the gradients of replica `r` leave as soon as they are complete, where its backward says that they may.
  void listen_to_gradients(int r);
  // Returns true when only the backward changes the gradients of this step before they are reduced. After the forward.
  [[nodiscard]] bool gradients_may_leave(int r) const;
  void reduce(int replica);
  void apply_update(int replica);
  // Moves the average, if there is one, behind the step's last update. On replica 0's thread.
  void follow_weights(int64_t step);

  // Between the two, with sharpness-aware minimization, in training_replicas_sam.cpp: climbs, and passes over the
  // batches of this step once more.
  void pass_again(int64_t step);
  void climb(int replica);
  void come_back(int replica);

  // After a step, in training_replicas_nan.cpp: stops the run, counts a skipped step, or warns.
  void treat_non_finite(int64_t step);
  void look_at_devices(int64_t step);
  // Throws where as many steps in a row as LossScalerOptions::most_skips_at_floor says were skipped.
  void look_at_loss_scales(int64_t step) const;
  void warn_once(const std::string& where, const std::string& what);
  // Returns what was not finite, and where that began. Runs the step again, and puts back all that this changes.
  std::string describe_non_finite(int64_t step);
  std::string first_non_finite_result() const;
  std::optional<std::string> find_origin(int replica, int64_t step);
  std::optional<std::string> run_again(int replica, int64_t step);

  TowerContext::Place place(int replica, nn::Mode mode) const;

  const TowerTrainerOptions& options_;
  const optim::Hyperparameters& hyperparameters_;
  std::unique_ptr<parallel::VariableUpdate> update_;
  std::unique_ptr<optim::WeightAverage> average_;  // of replica 0's values; null: none is kept
  bool update_skipped_ = false;                    // of replica 0 in this step
  std::vector<Replica> replicas_;                  // after update_: recordings of an exchange go before what exchanges
  std::unique_ptr<TowerContext> inference_;        // once it has been requested
  TowerStep inference_step_;
  NanGuard nan_guard_;
  int64_t skipped_steps_ = 0, skipped_in_a_row_ = 0;
  at::Tensor aten_random_;  // before this step, with custom layers
  std::vector<CostOptions> costs_;
  size_t cost_ = 0;                                        // the one that is lowered now
  std::vector<double> learning_rates_;                     // of this step, by cost
  std::optional<RunMemory> memory_;                        // once prepared
  std::optional<optim::RegularizationLoss> l2_of_values_;  // with weight decay
  at::Tensor l2_loss_;                                     // [] float64 of the values before the last update
  // Seconds that replica 0 spent in its updates of this step. Written by its thread; read after all replicas have met.
  double update_seconds_ = 0;
  Clock::time_point replica_0_done_;
  bool in_step_ = false;                              // also after one that threw
  std::deque<std::vector<data::Batch>> taken_ahead_;  // by take_batches()
  double seconds_ahead_ = 0;                          // that it took
  StepRecorder* recorder_ = nullptr;
  std::unique_ptr<ReplicaThreads> threads_;
};

}  // namespace trainyard::train
