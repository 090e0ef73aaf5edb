// Optimizers: they turn the gradients of a ParameterSet into new values, on whole flat blocks.
//
// For every element, before the optimizer's own formula:
//   g = gradient * inverse_loss_scale + weight_decay * w   (weight decay only where the segment's spec says so, or its
//                                                           group has one; lr is the step's times the group's factor)
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
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/step/device_kernels.h"
#include "trainyard/optim/step/segment_parts.h"
#include "trainyard/optim/step/step_state.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

// Parameters that are updated in another way than the rest.
struct ParameterGroup {
  std::string pattern;                 // of names; "*" stands for any characters: "layer1.*"
  double rate_factor = 1.0;            // times the learning rate; 0 leaves values as they are, with their decay
  std::optional<double> weight_decay;  // in the place of OptimizerOptions', for all that the pattern names
};

struct OptimizerOptions {
  double momentum = 0.9;
  double weight_decay = 0.0;             // coefficient of sum(w^2) / 2 in the loss
  std::optional<double> gradient_clip;   // by value
  std::vector<ParameterGroup> groups{};  // the last one whose pattern names a parameter counts for it
  void validate() const;                 // throws kInvalidArgument
};

// An optimizer, bound to one allocated set. One thread at a time.
class Optimizer : public core::Stateful {
 public:
  ~Optimizer() override = default;
  // Computes values() from gradients() and `state`, and calls values_changed().
  virtual void apply(const StepState& state) = 0;

  nn::ParameterSet& parameters() const { return *parameters_; }
  const OptimizerOptions& options() const { return options_; }

  // Returns the names of numbers that may change between steps: "weight_decay", and "momentum" where there is one.
  virtual std::vector<std::string> hyperparameter_names() const { return {"weight_decay"}; }
  // Throw kNotFound for a name that is not among them; the second, kInvalidArgument for a value that cannot be.
  double hyperparameter(std::string_view name) const;
  void set_hyperparameter(std::string_view name, double value);

  // Return what counts for the segment of this index in parameters().segments(): whether it is updated at all
  // (ParameterSet::set_trainable; its slots rest, too), the factor of the learning rate, and the coefficient of
  // sum(w^2) / 2, 0 where the segment has no decay.
  bool trainable(size_t segment) const { return parameters_->trainable(ids_[segment]); }
  double rate_factor(size_t segment) const { return rate_factors_[segment]; }
  double weight_decay(size_t segment) const { return weight_decays_[segment]; }

  // Sets by how much the reduction multiplies the weight decay term of the loss: gradients that are summed over n
  // replicas hold it n times. 1 at first.
  void set_weight_decay_factor(double factor) { weight_decay_factor_ = factor; }
  double weight_decay_factor() const { return weight_decay_factor_; }

  // Numbers that an optimizer keeps for every element of values(), in the same flat form.
  struct Slot {
    std::string name;   // "momentum"
    at::Tensor values;  // [total], dtype of the parameters
  };
  const std::vector<Slot>& slots() const { return slots_; }
  // Updates in the place of the CPU's loops; null on the CPU.
  const DeviceKernels* device() const { return device_; }
  // What a kernel on a device updates, block by block; empty on the CPU.
  const SegmentPartTable& parts() const { return parts_; }

  // Saves and loads slots as "<parameter>.<slot>", each in its parameter's shape.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  // Throws kInvalidArgument for bad options or a set that is not allocated, kUnsupported for a dtype other than float
  // and double, and as device_kernels() does.
  Optimizer(nn::ParameterSet& parameters, OptimizerOptions options);

  // Adds a slot; for constructors. The tensor is shared with slots().
  at::Tensor add_slot(std::string name, double initial = 0.0);

 private:
  void set_groups();
  double OptimizerOptions::*field_of(std::string_view name) const;
  at::Tensor slot_view(const Slot& slot, const nn::Segment& segment) const;

  nn::ParameterSet* parameters_;
  OptimizerOptions options_;
  double weight_decay_factor_ = 1.0;
  std::vector<nn::ParameterId> ids_;                  // by segment
  std::vector<double> rate_factors_, weight_decays_;  // by segment
  std::vector<Slot> slots_;
  const DeviceKernels* device_ = nullptr;
  SegmentPartTable parts_;
};

using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(nn::ParameterSet&, const OptimizerOptions&)>;
using OptimizerRegistry = core::Registry<OptimizerFactory>;
OptimizerRegistry& optimizers();  // "sgd", "momentum", "nesterov"

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
