// What the steps of a batch norm in training have in common: its parameters and running statistics, and the buffers of
// what its forward leaves for its backward.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/arguments.h"

namespace trainyard::nn::cpu {

class TrainingNorm {
 public:
  // `unit` begins with a BatchNorm. Acquires the buffers for a map of `shape`, so the step has its inputs before.
  TrainingNorm(PlanBuilder& builder, const Unit& unit, const MapShape& shape);

  UnitActivation activation() const { return activation_; }

  // Return the arguments of a pass, without the maps.
  NormForward forward(const Run& run) const;
  NormBackward backward(const Run& run) const;

  // Keeps what the backward reads, and acquires the parameters' gradients. For plan_backward().
  void plan_backward(PlanBuilder& builder);
  // Keeps what a recomputation reads.
  void use_factors(PlanBuilder& builder) const;
  // Sends the gradients of the parameters that train.
  void send_gradients(const Run& run) const;

  // Both take the number of values in a channel that the statistics are of. After the forward.
  void update_running_statistics(const Run& run, double count) const;
  // Returns a bound of what is normalized, before an addition and the activation.
  float bound(const Run& run, double count) const;

 private:
  void send(ParameterId id, float* gradient) const;

  const BatchNorm& op_;
  const BuildContext& context_;
  MapShape shape_;
  UnitActivation activation_ = UnitActivation::kNone;
  ParameterId weight_, bias_;
  bool trains_weight_ = false, trains_bias_ = false;
  at::Tensor mean_buffer_, variance_buffer_;
  BufferId mean_, variance_, scale_, shift_, weight_gradient_, bias_gradient_;
};

}  // namespace trainyard::nn::cpu
