// Sets the hyperparameters of the optimizers of all replicas before each step.
#pragma once

#include <vector>

#include "trainyard/optim/hyperparameters.h"
#include "trainyard/train/step/replica_set.h"

namespace trainyard::train {

class StepHyperparameters {
 public:
  // Both must outlive it.
  StepHyperparameters(ReplicaSet& replicas, const optim::Hyperparameters& hyperparameters);

  // Gives the optimizers the values that have changed, and returns whether there were any. Throws kInvalidArgument
  // where a cost has no parameter to train, because all are frozen.
  bool apply_hyperparameters();
  // Returns the learning rate of a cost in this step.
  double learning_rate(size_t cost) const { return learning_rates_[cost]; }

 private:
  void require_trainable() const;

  ReplicaSet& replicas_;
  const optim::Hyperparameters& hyperparameters_;
  std::vector<CostOptions> costs_;
  std::vector<double> learning_rates_;  // by cost
};

}  // namespace trainyard::train
