// The second pass of a step with sharpness-aware minimization (optim/optimizers/sharpness_aware.h): weights move to
// where the loss is higher, gradients are computed there on the batches of the first pass, and weights are restored
// before the update uses those gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/optim/optimizers/sharpness_aware.h"
#include "trainyard/train/step/replica_pass.h"

namespace trainyard::train {

class SharpnessAwarePass {
 public:
  // Both must outlive it. The options of `replicas` must have sharpness_aware.
  SharpnessAwarePass(ReplicaSet& replicas, ReplicaPass& pass);

  // Runs on the trainer's thread after all replicas have reduced the gradients of the first pass, and ends with the
  // update. Restores the weights when it throws.
  void run_second_pass();
  // Restores the weights, outputs and statistics of the first pass, and keeps the gradients of the second one. Called
  // on the thread of replica `r` before its update.
  void restore_weights(int r);
  // Returns whether replica `r` keeps a copy of its weights.
  bool keeps_copy(int r) const { return replica(r).optimizer.has_value(); }

 private:
  struct Replica {
    // Wraps the optimizer that updates the replica's parameters; empty where that of another replica does.
    std::optional<optim::SharpnessAware> optimizer;
    std::vector<at::Tensor> statistics;  // buffers after the first pass
    ReplicaView first_view;              // of that pass
  };
  Replica& replica(int r) { return copies_[static_cast<size_t>(r)]; }
  const Replica& replica(int r) const { return copies_[static_cast<size_t>(r)]; }
  void perturb_weights(int r);

  ReplicaSet& replicas_;
  ReplicaPass& pass_;
  std::vector<Replica> copies_;
};

}  // namespace trainyard::train
