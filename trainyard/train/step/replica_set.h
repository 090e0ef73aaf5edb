// Holds the replicas of a TowerTrainer, each with its tower, gradients and thread, and the variable update that
// connects them. train/step/replica_pass.h has the parts of a step.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainyard/nn/execution/accelerator.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/sync_batch_norm.h"
#include "trainyard/optim/hyperparameters.h"
#include "trainyard/optim/scaling/loss_scaler.h"
#include "trainyard/optim/step/step_state.h"
#include "trainyard/train/loop/callback.h"
#include "trainyard/train/profile/step_recorder.h"
#include "trainyard/train/step/replica_threads.h"
#include "trainyard/train/step/step_timer.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::train {

// Returns true if gradients are exchanged between replicas or with other processes.
bool exchange_gradients(const TowerTrainerOptions& options);
// Returns how replicas may divide the update of parameters, by what else reads gradients.
parallel::Sharding sharding_of(const TowerTrainerOptions& options);
// Returns true if custom layers or towers may draw from ATen's default generator, whose state is then saved with the
// run.
bool draws_from_aten(const TowerTrainerOptions& options);

struct Replica {
  std::unique_ptr<nn::SyncBatchNorm> sync_batch_norm;  // null: batch norms see the own batch alone
  std::unique_ptr<nn::GradientSink> sink;
  bool gradients_leave = false;  // in the backward that runs: as they become complete, before they are reduced
  bool searching = false;        // in a step that is run again (NonFiniteSteps), which exchanges nothing
  std::unique_ptr<TowerContext> tower;
  TowerStep step;
  ReplicaView view;
  std::vector<data::Batch> batches;  // of this step's micro-steps, where they may be needed again
  optim::StepState state;
  // Replicas that exchange gradients all see the same ones, and so scale alike.
  std::optional<optim::LossScaler> loss_scaler;
};

class ReplicaSet {
 public:
  // Builds towers and parameters. Both arguments must outlive it.
  ReplicaSet(const TowerTrainerOptions& options, const optim::Hyperparameters& hyperparameters);
  ReplicaSet(const ReplicaSet&) = delete;
  ReplicaSet& operator=(const ReplicaSet&) = delete;

  const TowerTrainerOptions& options() const { return options_; }
  int size() const { return options_.devices.replicas; }
  Replica& operator[](int replica) { return replicas_[static_cast<size_t>(replica)]; }
  const Replica& operator[](int replica) const { return replicas_[static_cast<size_t>(replica)]; }
  parallel::VariableUpdate& update() const { return *update_; }

  bool on_cpu() const { return options_.devices.accelerators.empty(); }
  // Returns the device of a replica; null on the CPU.
  nn::Accelerator* accelerator(int replica) const {
    return on_cpu() ? nullptr : options_.devices.accelerators[static_cast<size_t>(replica)].get();
  }
  // Makes the replica's accelerator the current one of the calling thread while the result lives.
  nn::AcceleratorScope use(int replica) const {
    return on_cpu() ? nn::AcceleratorScope() : accelerator(replica)->use();
  }
  // Does the same for all accelerators; that of replica 0 is the current one.
  nn::AcceleratorScope use_all() const { return options_.devices.use(); }

  // Starts a thread for each replica; stop() ends them.
  void start(int intra_op_threads_each);
  void stop() { threads_.reset(); }
  // Calls work(replica) on each replica's thread, and blocks until all are done (ReplicaThreads::run).
  void run(const std::function<void(int)>& work) { threads_->run(work); }

  // Makes the steps from the next one on write into `recorder`; null ends it.
  void record(StepRecorder* recorder);
  StepRecorder* recorder() const { return recorder_; }
  ThreadRecord* record_of(int replica) const { return recorder_ == nullptr ? nullptr : &recorder_->replica(replica); }

  // Returns the seconds that replica 0 has spent waiting for others and moving numbers.
  CommunicationSeconds communication_seconds() const;
  // Returns the replicas' mean of the first loss of the last step; not a number before it. Waits for the devices.
  double base_loss() const;
  // Rounds what an optimizer of replica `r` updates to OpenDevices::variables_as, if that is set.
  void round_variables(int r, int optimizer = 0);
  void round_all_variables();
  // Returns the tower for inference on replica 0's device; the first call makes it.
  const TowerStep& inference_tower();

 private:
  // Connects the batch norms of all replicas, if sync_batch_norm is requested and there are several.
  void connect_batch_norms();
  TowerContext::Place place(int replica, nn::Mode mode) const;
  // Wakes the replicas that wait for a failed one, with its error.
  void abort(const core::Error& error) const;

  const TowerTrainerOptions& options_;
  const optim::Hyperparameters& hyperparameters_;
  std::unique_ptr<parallel::VariableUpdate> update_;
  std::vector<Replica> replicas_;
  std::unique_ptr<TowerContext> inference_;  // null before the first inference_tower()
  TowerStep inference_step_;
  StepRecorder* recorder_ = nullptr;
  std::unique_ptr<ReplicaThreads> threads_;  // null outside of train()
};

}  // namespace trainyard::train
