// Optimizers: they turn the gradients of a ParameterSet into new values, on whole flat blocks.
//
// For every element, before the optimizer's own formula:
//   g = gradient * inverse_loss_scale + weight_decay * w   (weight decay only where the segment's spec says so, or its
//                                                           group has one; lr is the step's times the group's factor)
//         + 2 c * w, + c * w, + c * sign(w)                (terms of OptimizerOptions::regularization: l2, l2_half, l1)
//   g = factor * g                                         (OptimizerOptions::norm_clip, if set: norm_clip.h says
//                                                           which factor, and whether regularization is in g then)
//   g = clip(g, -gradient_clip, +gradient_clip)            (if set)
// and an update with found_inf leaves values and slots as they are.
//
//   sgd:       w -= lr * g
//   momentum:  v = m * v + g;  w -= lr * v
//   nesterov:  v = m * v + g;  w -= lr * (g + m * v)       (TensorFlow's form: tf_cnn_benchmarks' --optimizer=momentum)
//   nadam, keras_nadam, for update t of those that were not skipped, from 1:
//     u(t) = beta1 * (1 - 0.5 * 0.96^(0.004 t))            (keras_nadam: 0.96^t);  U(t) = u(1) * ... * u(t)
//     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
//     w -= lr * ((1 - u(t)) / (1 - U(t)) * g + u(t+1) / (1 - U(t+1)) * m) / (sqrt(v / (1 - beta2^t)) + epsilon)
//
// nadam is that of tf.keras up to 2.10, and PyTorch's NAdam with its momentum_decay of 0.004; keras_nadam is that of
// Keras from 2.11 on. All of them correct the bias of m by the product of momenta, that of v by beta2^t, and add
// epsilon behind the root of the corrected v. epsilon is 1e-7 as in Keras; PyTorch's is 1e-8. On the CPU only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/norm_clipper.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/optim/step/device_kernels.h"
#include "trainyard/optim/step/segment_parts.h"
#include "trainyard/optim/step/step_state.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

// An optimizer, bound to one allocated set. One thread at a time.
class Optimizer : public core::Stateful {
 public:
  ~Optimizer() override = default;
  // Computes values() from gradients() and `state`, writes the zeros of masks, and calls values_changed().
  void apply(const StepState& state) { apply(state, parameters_->gradients()); }
  // Does the same with the gradients of another set of the same declarations, in the same memory: [total], dtype of
  // values(). Throws kInvalidArgument for a tensor of another form.
  void apply(const StepState& state, const at::Tensor& gradients);

  // Makes the gradients of its trainable segments in parameters() those that the formula uses, in place: times the
  // inverse loss scale, plus the gradient of the regularization, clipped by norm. For who looks at gradients before
  // they are applied. The apply() that follows does none of these again; it clips by value and obeys found_inf as ever.
  // At most once before each apply(). load() forgets it.
  void complete_gradients(const StepState& state);
  // Returns true from complete_gradients() to the end of the next apply().
  bool gradients_complete() const { return gradients_complete_; }

  nn::ParameterSet& parameters() const { return *parameters_; }
  const OptimizerOptions& options() const { return options_; }

  // Returns the names of those members of OptimizerOptions that the optimizer reads and that may change between steps:
  // "weight_decay", and "momentum", "beta1", "beta2" and "epsilon" where its formula has them.
  virtual std::vector<std::string> hyperparameter_names() const { return {"weight_decay"}; }
  // Throw kNotFound for a name that is not among them; the second, kInvalidArgument for a value that cannot be.
  double hyperparameter(std::string_view name) const;
  void set_hyperparameter(std::string_view name, double value);

  // Returns whether the segment of this index in parameters().segments() is one that OptimizerOptions::parameters name.
  bool owns(size_t segment) const { return owned_[segment]; }
  // Returns those segments, by offset.
  std::vector<nn::Segment> own_segments() const;
  // Return what counts for a segment: whether it is updated at all (owned, and ParameterSet::set_trainable; its slots
  // rest, too), the factor of the learning rate, and the coefficient of sum(w^2) / 2, 0 where the segment has no decay.
  bool trainable(size_t segment) const {
    return owned_[segment] && parameters_->trainable(parameters_->segments()[segment].id);
  }
  double rate_factor(size_t segment) const { return rate_factors_[segment]; }
  double weight_decay(size_t segment) const { return weight_decays_[segment]; }

  // One term of the regularization, weight decay among them.
  struct Regularizer {
    std::string name;  // "weight_decay", or the term's
    RegularizationKind kind = RegularizationKind::kL2Half;
    std::vector<double> coefficients;  // by segment; 0 where the term does not apply
  };
  // Returns weight decay, where a parameter has some, then the terms in their order.
  const std::vector<Regularizer>& regularizers() const { return regularizers_; }
  // Return what the gradient of the regularization is for a segment: l2_rate * w + l1_rate * sign(w).
  double l2_rate(size_t segment) const { return l2_rates_[segment]; }
  double l1_rate(size_t segment) const { return l1_rates_[segment]; }

  // Sets by how much the reduction multiplies the regularization, which is a part of the loss: gradients that are
  // summed over n replicas hold it n times. 1 at first.
  void set_weight_decay_factor(double factor) { weight_decay_factor_ = factor; }
  double weight_decay_factor() const { return weight_decay_factor_; }

  // Returns what clips gradients by their norm; null without OptimizerOptions::norm_clip.
  const NormClipper* norm_clipper() const { return norm_clipper_.get(); }

  // Numbers that an optimizer keeps for every element of values(), in the same flat form. Those of segments that it
  // does not own stay as they begin.
  struct Slot {
    std::string name;   // "momentum"
    at::Tensor values;  // [total], dtype of the parameters
  };
  const std::vector<Slot>& slots() const { return slots_; }
  // Updates in the place of the CPU's loops; null on the CPU.
  const DeviceKernels* device() const { return device_; }
  // What a kernel on a device updates, block by block: the segments that are owned; empty on the CPU.
  const SegmentPartTable& parts() const { return parts_; }

  // Saves and loads slots as "<parameter>.<slot>", each in its parameter's shape, for its own parameters only: two
  // optimizers that share a set, but no parameter, save side by side.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  // Computes the new values, and those of slots, from `gradients`. flat_update() (flat_update.h) does it.
  virtual void update(const StepState& state, const at::Tensor& gradients) = 0;

  // Throws kUnsupported where parameters lie on a device: "<what> ... on a device yet".
  void require_host_memory(std::string_view what) const;

  // Throws kInvalidArgument for bad options or a set that is not allocated, kNotFound for a pattern that names no
  // parameter, kUnsupported for a dtype other than float and double, and as device_kernels() does.
  Optimizer(nn::ParameterSet& parameters, OptimizerOptions options);

  // Adds a slot; for constructors. The tensor is shared with slots().
  at::Tensor add_slot(std::string name, double initial = 0.0);

 private:
  // Calls `visit` with the index of each segment that the pattern names.
  template <typename Visit>
  void for_each(const std::string& pattern, Visit visit) const;
  // Measures gradients for clipping by norm; on a device, which has no factors in its pass, clips them in place.
  void clip(const StepState& state, const at::Tensor& gradients);
  void set_groups();
  void set_regularizers();
  double OptimizerOptions::*field_of(std::string_view name) const;
  at::Tensor slot_view(const Slot& slot, const nn::Segment& segment) const;

  nn::ParameterSet* parameters_;
  OptimizerOptions options_;
  double weight_decay_factor_ = 1.0;
  std::vector<bool> owned_;                                                 // by segment
  std::vector<double> rate_factors_, weight_decays_, l2_rates_, l1_rates_;  // by segment
  std::vector<Regularizer> regularizers_;
  bool gradients_complete_ = false;
  std::unique_ptr<NormClipper> norm_clipper_;
  std::vector<Slot> slots_;
  const DeviceKernels* device_ = nullptr;
  SegmentPartTable parts_;
};

using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(nn::ParameterSet&, const OptimizerOptions&)>;
using OptimizerRegistry = core::Registry<OptimizerFactory>;
OptimizerRegistry& optimizers();  // "sgd", "momentum", "nesterov", "nadam", "keras_nadam"

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
