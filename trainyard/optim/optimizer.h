// Optimizers: they turn the gradients of a ParameterSet into new values, on whole flat blocks.
//
// For every element, before the optimizer's own formula:
//   g = gradient * inverse_loss_scale + weight_decay * w   (weight decay only where the segment's spec says so)
//   g = clip(g, -gradient_clip, +gradient_clip)            (if set)
// and an update with found_inf leaves values and slots as they are.
//
//   sgd:       w -= lr * g
//   momentum:  v = m * v + g;  w -= lr * v
//   nesterov:  v = m * v + g;  w -= lr * (g + m * v)       (TensorFlow's form: tf_cnn_benchmarks' --optimizer=momentum)
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/core/registry.h"
#include "trainyard/core/stateful.h"
#include "trainyard/nn/parameter_set.h"
#include "trainyard/optim/step_state.h"

namespace trainyard::optim {

struct OptimizerOptions {
  double momentum = 0.9;
  double weight_decay = 0.0;            // coefficient of sum(w^2) / 2 in the loss, times what the reduction makes of it
  std::optional<double> gradient_clip;  // by value
  void validate() const;                // throws kInvalidArgument
};

// Bound to one allocated set. One thread at a time.
class Optimizer : public core::Stateful {
 public:
  virtual ~Optimizer() override = default;
  // values() from gradients() and `state`; calls values_changed().
  virtual void apply(const StepState& state) = 0;

  nn::ParameterSet& parameters() const { return *parameters_; }
  const OptimizerOptions& options() const { return options_; }

 protected:
  Optimizer(nn::ParameterSet& parameters, OptimizerOptions options) : parameters_(&parameters), options_(options) {}

 private:
  nn::ParameterSet* parameters_;
  OptimizerOptions options_;
};

using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(nn::ParameterSet&, const OptimizerOptions&)>;
using OptimizerRegistry = core::Registry<OptimizerFactory>;
OptimizerRegistry& optimizers();  // "sgd", "momentum", "nesterov"

// wd * sum over decayed parameters of w^2 / 2, in double: [] float64.
at::Tensor l2_loss(const nn::ParameterSet& parameters, double weight_decay);

}  // namespace trainyard::optim
