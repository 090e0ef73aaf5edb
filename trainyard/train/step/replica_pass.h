// Runs the parts of a step of one replica, on its thread: forward and backward of each micro-step, the reduction of
// gradients, the update. train/step/replicated_step.h calls them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/optim/optimizers/regularization_loss.h"
#include "trainyard/train/step/nan_guard.h"
#include "trainyard/train/step/replica_set.h"
#include "trainyard/train/step/step_timer.h"

namespace trainyard::train {

class SharpnessAwarePass;

class ReplicaPass {
 public:
  // All must outlive it.
  ReplicaPass(ReplicaSet& replicas, NanGuard& nan_guard, StepTimer& timer);

  // Begin a step and, within it, the turn of one of the costs. Called on the trainer's thread.
  void begin_step(int64_t step);
  void set_cost(size_t cost) { cost_ = cost; }
  size_t cost() const { return cost_; }
  const std::vector<CostOptions>& costs() const { return costs_; }
  // Returns whether a cost has its turn in this step.
  bool takes_turn(size_t cost) const { return step_ % costs_[cost].every == 0; }
  // Returns ATen's generator as it was before this step; undefined where nothing of the run draws from it.
  const at::Tensor& random_before_step() const { return aten_random_; }

  // Called on the thread of replica `r`, in this order. `batch` is of one of the micro-steps, counted from 0; reduce()
  // and apply_update() follow the last one.
  void begin(int r, double learning_rate);
  void forward_backward(int r, int micro_step, data::Batch batch);
  void reduce(int r);
  // With `second_pass`, the gradients are those of a sharpness-aware second pass, whose weights are restored first.
  void apply_update(int r, SharpnessAwarePass* second_pass = nullptr);
  // Updates the weight average, if there is one. Called on replica 0's thread after the last update of the step.
  void update_weight_average();

  optim::WeightAverage* average() const { return average_.get(); }
  // Returns the regularization's part of the loss at the values before the last update: [] float64; undefined if there
  // is none.
  const at::Tensor& l2_loss() const { return l2_loss_; }
  void set_l2_loss(at::Tensor loss) { l2_loss_ = std::move(loss); }
  // Reads the regularization's options again, after hyperparameters have changed.
  void update_regularization();

 private:
  // Returns the current cost's loss, averaged over micro-steps.
  at::Tensor loss_of_cost(int r) const;
  // Returns whether no other cost has a turn after the current one in this step.
  [[nodiscard]] bool is_last_turn() const;
  // Makes the average that the options or the optimizer ask for; null: none. Throws kInvalidArgument where both do.
  [[nodiscard]] std::unique_ptr<optim::WeightAverage> make_average();
  // Returns true when only the backward changes the gradients of this step before their reduction. Call it after the
  // forward.
  [[nodiscard]] bool gradients_may_leave(int r) const;
  // Makes the step that the replica has ended one that is skipped: servers have left its update out.
  static void skip_with_others(Replica& replica);

  ReplicaSet& replicas_;
  const TowerTrainerOptions& options_;
  NanGuard& nan_guard_;
  StepTimer& timer_;
  std::vector<CostOptions> costs_;
  bool looks_later_ = false;  // the update alone knows whether gradients are finite
  size_t cost_ = 0;           // whose turn it is
  int64_t step_ = 0;
  at::Tensor aten_random_;
  std::unique_ptr<optim::WeightAverage> average_;          // of replica 0's values; null: none is kept
  bool update_skipped_ = false;                            // of replica 0 in this step
  std::optional<optim::RegularizationLoss> l2_of_values_;  // with weight decay
  at::Tensor l2_loss_;
};

}  // namespace trainyard::train
