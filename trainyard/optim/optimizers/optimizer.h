// Optimizers: they turn the gradients of a ParameterSet into new values, on whole flat blocks.
//
// For every element, before the optimizer's own formula:
//   g = gradient * inverse_loss_scale + weight_decay * w   (weight decay only where the segment's spec says so, or its
//                                                           group has one; lr is the step's times the group's factor)
//         + 2 c * w, + c * w, + c * sign(w)                (terms of OptimizerOptions::regularization: l2, l2_half, l1)
//   g = factor * g                                         (OptimizerOptions::norm_clip, if set: NormClip says
//                                                           which factor, and whether regularization is in g then)
//   g = clip(g, -gradient_clip, +gradient_clip)            (if set)
// and an update with found_inf changes neither values nor slots nor the count of updates.
//
// That is coupled decay, a part of the loss. With OptimizerOptions::decoupled_decay, and always in torch_adamw,
// keras_adamw, lion, lamb, schedule_free_adamw and for muon's matrices, the decay is not a part of the loss and of g;
// the formula gets (1 - lr * weight_decay) * w instead of w (lamb and the schedule-free ones add it to their
// direction). lars adds it after its norms, and it is a part of the loss.
//
// An optimizer is named for the library whose numbers it gives:
//
//   sgd
//   tf_momentum      TensorFlow 1's, lr outside of the velocity   tf_nesterov    the same with use_nesterov
//   torch_momentum   PyTorch's SGD                                keras_momentum Keras' SGD, lr within the velocity
//   tf_rmsprop       TensorFlow 1's                               torch_rmsprop  PyTorch's
//                                                                 keras_rmsprop  Keras'
//   tf_adam          TensorFlow 1's and Keras'                    torch_adam     PyTorch's
//   keras_adamw      Keras' AdamW                                 torch_adamw    PyTorch's AdamW
//   torch_nadam      PyTorch's, and tf.keras' up to 2.10          keras_nadam    Keras' from 2.11 on
//   lars             You et al. 2017                              lamb           You et al. 2020
//   muon_sgd         Jordan et al. 2024, with PyTorch's SGD       muon_adamw     with PyTorch's AdamW
//   lion             Chen et al. 2023
//   schedule_free_sgd, schedule_free_adamw                        Defazio et al. 2024
//
// Names of earlier versions (momentum, nesterov, rmsprop, adam, adamw, nadam) still work, with a line in the log.
//
// The formula and the source of each are declared in the file of its family in this folder, and printed by `trainyard
// help`: optimizer_formulas() (formula_optimizer.h).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/optim/optimizers/optimizer_options.h"
#include "trainyard/optim/step/step_state.h"

namespace trainyard::optim {
class DeviceKernels;
class NormClipper;
struct SegmentPartTable;
}  // namespace trainyard::optim

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

// An optimizer of one allocated set. For one thread at a time.
class Optimizer : public core::Stateful {
 public:
  ~Optimizer() override;
  // Computes values() from gradients() and `state`, writes the zeros of masks, and calls values_changed().
  void apply(const StepState& state) { apply(state, parameters_->gradients()); }
  // Does the same with the gradients of another set of the same declarations, in the same memory: [total], dtype of
  // values(). Throws kInvalidArgument for a tensor of another form, kInternal after keep_part().
  void apply(const StepState& state, const at::Tensor& gradients);

  // Returns whether the result of a training is not values(), but what result() makes of them: to be evaluated, saved
  // and exported in their place.
  [[nodiscard]] virtual bool has_result() const { return false; }
  // Turns a copy of values(), [total], into that result.
  virtual void result(const at::Tensor& /*values*/) const {}

  // Turns the gradients of its trainable segments in parameters() into those that the formula uses, in place: times the
  // inverse loss scale, plus the gradient of the regularization, clipped by norm. For code that reads gradients before
  // they are applied. The next apply() does not repeat this; it clips by value and handles found_inf as usual. Call it
  // at most once per backward. load() resets it.
  void complete_gradients(const StepState& state);
  // Returns true from complete_gradients() to the end of the next apply().
  [[nodiscard]] bool gradients_complete() const { return gradients_complete_; }

  // A range of elements of the flat blocks.
  struct Part {
    int64_t begin = 0, end = 0;
  };
  // Returns why update_part() cannot be used: "gradients are clipped by norm". Empty: it can. Only formulas that
  // compute each element from that element alone can update a part.
  [[nodiscard]] virtual std::string part_obstacle() const { return "it is no formula of a single element"; }
  // Returns the first element of the parts() that begin at `element` or behind; parameters().total() when there is
  // none. Parts of optimizers that together update a set begin and end there.
  [[nodiscard]] int64_t part_boundary(int64_t element) const;
  // Makes it the optimizer of `part` alone: slots() hold the elements of the part, in the result of `memory` where that
  // is defined. Their values stay. Once, when part_obstacle() is empty.
  void keep_part(Part part, const nn::ParameterSet::GradientMemory& memory);
  // Returns the elements that it updates; initially all.
  [[nodiscard]] Part part() const { return part_; }
  // Gives it the slots of the optimizers of all parts, by slot and in the order of elements: save() then writes whole
  // slots. They must not change while it does.
  void share_slots(std::vector<std::vector<at::Tensor>> slots) { shared_slots_ = std::move(slots); }

  // What update_part() calls for runs of elements [begin, begin + count), from the calling thread's intra-op threads.
  struct PartSteps {
    // The longest run: what is computed of it stays in the first cache, and all memory is read at the same time.
    static constexpr int64_t kMostElements = 2048;
    // Returns the gradients of these elements, of the parameters' dtype. The thread's next call may overwrite them.
    std::function<void*(int64_t begin, int64_t count)> gradients{};
    // The values of these elements are new.
    std::function<void(int64_t begin, int64_t count)> updated{};
  };
  // Computes new values of the trainable elements of part(). Calls nothing in a step with found_inf. The set is
  // complete once all optimizers of it have done so: finish_update() follows.
  void update_part(const StepState& state, const PartSteps& steps);
  // Writes the zeros of masks into the whole set, and calls values_changed().
  void finish_update();

  nn::ParameterSet& parameters() const { return *parameters_; }
  const OptimizerOptions& options() const { return options_; }

  // Returns one of options().numbers. Throws kNotFound for another name.
  [[nodiscard]] double number(std::string_view name) const;
  // Returns the names of the numbers that may change between steps, sorted, and then "weight_decay".
  [[nodiscard]] std::vector<std::string> hyperparameter_names() const;
  // Get and set a hyperparameter. Throw kNotFound for another name; the second also kInvalidArgument for an invalid
  // value.
  double hyperparameter(std::string_view name) const;
  void set_hyperparameter(std::string_view name, double value);

  // Returns whether the segment of this index in parameters().segments() is selected by OptimizerOptions::parameters.
  [[nodiscard]] bool owns(size_t segment) const { return owned_[segment]; }
  // Return these segments, by offset, and their indices in parameters().segments().
  [[nodiscard]] std::vector<nn::Segment> own_segments() const;
  const std::vector<size_t>& own() const { return own_; }
  // Return the settings of a segment: whether it is updated (owned, and trainable by ParameterSet::set_trainable; else
  // its slots do not change either), the factor of the learning rate, and the coefficient of sum(w^2) / 2, 0 without
  // decay.
  [[nodiscard]] bool trainable(size_t segment) const {
    return owned_[segment] && parameters_->trainable(parameters_->segments()[segment].id);
  }
  double rate_factor(size_t segment) const { return rate_factors_[segment]; }
  double weight_decay(size_t segment) const { return weight_decays_[segment]; }

  enum class DecayForm {
    kCoupled,    // g includes it
    kDecoupled,  // the update applies it, and the loss does not include it
    kInUpdate,   // the update applies it, and the loss includes it
  };
  // Returns the form for all parameters but those that decouple() names.
  [[nodiscard]] DecayForm decay_form() const { return decay_form_; }
  // Returns the weight decay that the update itself applies to a segment; 0 when g includes it.
  [[nodiscard]] double update_decay(size_t segment) const;
  // Returns whether segments without decay are scaled by norms, too: the number "adapt_undecayed".
  [[nodiscard]] bool adapts_undecayed() const { return adapts_undecayed_; }
  // Returns whether a segment is scaled by norms, if the formula is.
  [[nodiscard]] bool adapts(size_t segment) const {
    return adapts_undecayed_ || parameters_->segments()[segment].spec.decay;
  }

  // One term of the regularization, weight decay among them.
  struct Regularizer {
    std::string name{};  // "weight_decay", or the term's
    RegularizationKind kind = RegularizationKind::kL2Half;
    std::vector<double> coefficients{};  // by segment; 0 where the term does not apply
  };
  // Returns the regularization terms of the loss: weight decay, if any parameter has some and it is not decoupled, then
  // the terms of the options in order.
  const std::vector<Regularizer>& regularizers() const { return regularizers_; }
  // Return the regularization in g for a segment: l2_rate * w + l1_rate * sign(w).
  [[nodiscard]] double l2_rate(size_t segment) const { return l2_rates_[segment]; }
  [[nodiscard]] double l1_rate(size_t segment) const { return l1_rates_[segment]; }

  // Sets the factor by which the reduction multiplies the regularization, which is a part of the loss: gradients that
  // are summed over n replicas include it n times. Initially 1.
  void set_weight_decay_factor(double factor) { weight_decay_factor_ = factor; }
  double weight_decay_factor() const { return weight_decay_factor_; }

  // Returns what clips gradients by their norm; null without OptimizerOptions::norm_clip.
  [[nodiscard]] const NormClipper* norm_clipper() const { return norm_clipper_.get(); }

  // Numbers that an optimizer keeps for every element of values(), in the same flat form. Those of segments that it
  // does not own keep their initial values.
  struct Slot {
    std::string name{};   // "momentum"
    at::Tensor values{};  // [total], dtype of the parameters; after keep_part() the part's elements
  };
  // Returns the slots: the formula's, then "slow" with OptimizerOptions::lookahead, then "delayed_gradient" with
  // OptimizerOptions::delayed.
  const std::vector<Slot>& slots() const { return slots_; }
  // Returns the kernels that are used instead of the CPU's loops; null on the CPU.
  [[nodiscard]] const DeviceKernels* device() const { return device_; }
  // Returns the parts of the owned segments, each of which a GPU block or a thread updates, on the parameters' device.
  // SegmentPart::segment is an index in own().
  const SegmentPartTable& parts() const { return *parts_; }
  // Returns the number of updates that were not skipped: float64 on the parameters' device, an UpdateCount, or other
  // numbers behind the first. Undefined for optimizers that do not count.
  const at::Tensor& update_count() const { return update_count_; }
  // Returns, by place in own(), how many of these updates have left a parameter out because it was frozen: float64 in
  // host memory. PyTorch's formulas count the others. Undefined for formulas that count all, and on a device.
  const at::Tensor& missed_updates() const { return missed_updates_; }
  // Returns the number of updates that Lookahead has counted, [1] float64. Undefined without it.
  const at::Tensor& lookahead_count() const { return lookahead_count_; }
  // Counts all updates for all parameters. For an optimizer whose state goes without missed_updates().
  void count_updates_together() { missed_updates_ = at::Tensor(); }

  // Saves and loads slots as "<parameter>.<slot>", each in its parameter's shape, for its own parameters only: two
  // optimizers that share a set, but no parameter, can save into the same state. The count of updates is saved under
  // the name of its first parameter, and the updates that a parameter has missed under its own where there are any.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 protected:
  // Computes the new values, and those of slots, from `gradients`. flat_update() (flat_update.h) does it.
  virtual void update(const StepState& state, const at::Tensor& gradients) = 0;
  // Implements update_part(). Called when part_obstacle() is empty; throws kInternal unless it is overridden.
  virtual void update_own_part(const StepState& state, const PartSteps& steps);

  // Throws kUnsupported when parameters are on a device: "<what> ... on a device yet".
  void require_host_memory(std::string_view what) const;

  // Throws kInvalidArgument for bad options or a set that is not allocated, kNotFound for a pattern that names no
  // parameter, kUnsupported for a dtype other than float and double, and as device_kernels() does. The second one takes
  // the form of the decay from the options. `numbers` declares the optimizer's numbers; options().numbers then has all
  // of them. Throws as complete_numbers() does.
  Optimizer(nn::ParameterSet& parameters, OptimizerOptions options, DecayForm decay_form,
            std::vector<OptimizerNumber> numbers = {});
  Optimizer(nn::ParameterSet& parameters, const OptimizerOptions& options, std::vector<OptimizerNumber> numbers = {});

  // Makes the decay of these segments (by index in parameters().segments()) kDecoupled; for constructors.
  void decouple(const std::vector<bool>& segments);
  // Adds a slot; for constructors. The tensor is shared with slots().
  at::Tensor add_slot(std::string name, double initial = 0.0);
  // Makes update_count() with these numbers, and with `by_parameter` missed_updates(); for constructors. flat_update()
  // increments those of an UpdateCount.
  void count_updates(const std::vector<double>& initial = {0, 1}, bool by_parameter = false);

 private:
  // Calls `visit` with the index of each segment that matches the pattern.
  template <typename Visit>
  void for_each(const std::string& pattern, Visit visit) const;
  // Measures gradients for clipping by norm. On a device, whose pass has no factors, clips them in place.
  void clip(const StepState& state, const at::Tensor& gradients);
  // Completes the gradients and swaps them with those of the previous update.
  void delay(const StepState& state, const at::Tensor& gradients);
  // Call it before and after an update with OptimizerOptions::lookahead.
  void begin_lookahead();
  void end_lookahead();
  [[nodiscard]] at::Tensor slow_weights() const;
  void set_groups();
  void set_layer_rates();
  void set_regularizers();
  void check_hyperparameter(std::string_view name) const;  // throws kNotFound
  // Returns the slot's elements of a segment, in the parameter's shape; a copy of them where slots are shared.
  [[nodiscard]] at::Tensor slot_of(size_t slot, const nn::Segment& segment) const;
  // Reads the slot's elements of a segment into the part of them that is here.
  void load_slot(const core::StateReader& reader, const Slot& slot, const nn::Segment& segment) const;
  std::string count_name(const char* count = "update_count") const;
  // Returns the name under which missed_updates() of a parameter are saved, by its place in own().
  [[nodiscard]] std::string missed_name(size_t place) const;

  nn::ParameterSet* parameters_;
  OptimizerOptions options_;
  DecayForm decay_form_;
  std::vector<bool> decoupled_;  // by segment
  std::vector<OptimizerNumber> declared_;
  bool adapts_undecayed_ = false;
  double weight_decay_factor_ = 1.0;
  std::vector<bool> owned_;                                                 // by segment
  std::vector<size_t> own_;                                                 // segments
  std::vector<double> rate_factors_, weight_decays_, l2_rates_, l1_rates_;  // by segment
  std::vector<Regularizer> regularizers_;
  bool gradients_complete_ = false;
  std::unique_ptr<NormClipper> norm_clipper_;
  std::vector<Slot> slots_;
  Part part_;
  std::vector<std::vector<at::Tensor>> shared_slots_;  // empty: slots_ hold all
  at::Tensor update_count_, missed_updates_, lookahead_count_;
  const DeviceKernels* device_ = nullptr;
  std::unique_ptr<const SegmentPartTable> parts_;
};

// Makes an optimizer for an allocated set, once for each set that is updated. May be empty.
class MakeOptimizer : public std::function<std::unique_ptr<Optimizer>(nn::ParameterSet&)> {
 public:
  using Function = std::function<std::unique_ptr<Optimizer>(nn::ParameterSet&)>;
  MakeOptimizer() = default;
  MakeOptimizer(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  template <typename Make>
  requires(!std::derived_from<std::remove_cvref_t<Make>, MakeOptimizer>) MakeOptimizer(Make&& make)  // NOLINT
      : Function(checked(std::forward<Make>(make))) {}

 private:
  template <typename Make>
  static Function checked(Make&& make) {
    if constexpr (std::convertible_to<Make, Function>) {
      return std::forward<Make>(make);
    } else {
      static_assert(core::kRightType<Make>,
                    "make_optimizer is a function of nn::ParameterSet& that returns std::unique_ptr<optim::Optimizer>, "
                    "as optim::optimizers().get(\"tf_momentum\")(set, {}) does");
      return {};
    }
  }
};

using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(nn::ParameterSet&, const OptimizerOptions&)>;
using OptimizerRegistry = core::Registry<OptimizerFactory>;
OptimizerRegistry& optimizers();  // by the names above

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
