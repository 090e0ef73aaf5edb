// Batch norm with the addition and the activation behind it, normalized with the running statistics, which stay as they
// are: a multiplication and an addition a channel. For inference, and for training where the norm is frozen as a whole.
//   u = input * scale + shift (+ residual), output = activation(u)
//   d = the output's gradient * activation'(u): the residual's gradient; input' = d * scale
#include <algorithm>
#include <utility>

#include "trainyard/nn/cpu/convolution/onednn/packed_weights.h"
#include "trainyard/nn/cpu/elementwise/magnitude.h"
#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/norm_constants.h"
#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

class RunningNormStep : public UnitStep {
 public:
  RunningNormStep(PlanBuilder& builder, const Unit& unit) : UnitStep(builder, unit) {
    if (unit.activation >= 0) {
      const Node& activation = builder.graph().nodes[static_cast<size_t>(unit.activation)];
      activation_ = unit_activation(std::get<Activation>(activation.op).function);
    }
    input_ = builder.map_of(node_.inputs[0]);
    if (unit.residual >= 0) residual_ = builder.map_of(unit.residual);
    builder.use_value(input_);
    if (residual_ >= 0) builder.use_value(residual_);
    output_ = builder.new_map(node_.shape, input_needs_gradient(builder) || residual_needs_gradient(builder));
    shape_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    input_data_ = builder.value(input_).data;
    if (residual_ >= 0) residual_data_ = builder.value(residual_).data;
    output_data_ = builder.value(output_).data;
    const int64_t bytes = 2 * shape_.padded_channels() * static_cast<int64_t>(sizeof(float));
    if (context_.mode == Mode::kInference) {
      kept_constants_ = PackedWeights(bytes);
    } else {
      constants_ = builder.acquire(bytes);
    }
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override {
    return residual_ >= 0 ? std::vector<ValueId>{input_, residual_} : std::vector<ValueId>{input_};
  }
  // ReLU's output says as much as its input about where the gradient passes.
  std::vector<ValueId> kept() const override {
    if (activation_ == UnitActivation::kNone) return {};
    return {activation_ == UnitActivation::kRelu ? output_ : input_};
  }

  void forward(Run& run) override {
    const float* constants = run.at<float>(constants_);
    if (constants_.valid()) {
      fold(run.at<float>(constants_));
    } else {
      // Training changes statistics without a new version of the set. Those of a frozen plan change with the version
      // only.
      const uint64_t version = context_.frozen ? context_.parameters->version() : ++forwards_;
      constants = static_cast<const float*>(
          kept_constants_.get(version, [&](void* target) { fold(static_cast<float*>(target)); }));
    }
    apply(run, activation_, input_data_, residual_data_, output_data_, constants);
  }

  float bound(const Run& run) const override {
    const float added = residual_ >= 0 ? run.bounds[static_cast<size_t>(residual_)] : 0;
    return bound_behind(
        (run.bounds[static_cast<size_t>(input_)] * largest_factor_ + largest_shift_ + added) * kRoundingUp,
        activation_);
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    const BufferId input = builder.data(sources[0]);
    const BufferId residual = residual_ >= 0 ? builder.data(sources[1]) : BufferId{};
    builder.use(constants_);
    return [this, input, residual, output = builder.new_buffer(output_)](Run& run) {
      apply(run, activation_, input, residual, output, run.at<float>(constants_));
    };
  }

  void plan_backward(PlanBuilder& builder) override {
    const bool activates = activation_ != UnitActivation::kNone;
    gradients_ = builder.take_gradients(output_, activates ? kMaxGradients : 1);
    if (gradients_.empty()) return;
    builder.use(constants_);
    BufferId own;
    for (BufferId gradient : gradients_) {
      if (builder.may_overwrite(gradient)) own = gradient;
    }
    passed_ = gradients_[0];
    if (activates) {
      kept_ = builder.data(kept()[0]);
      if (activation_ != UnitActivation::kRelu) activation_input_ = builder.acquire(builder.bytes_of(output_));
      if (!own.valid()) own = builder.acquire(builder.bytes_of(output_));
      passed_ = own;
    }
    if (residual_needs_gradient(builder)) {
      builder.give_gradient(residual_, passed_);
      own = {};
    }
    if (!input_needs_gradient(builder)) return;
    input_gradient_ = own.valid() ? own : builder.acquire(builder.bytes_of(input_));
    builder.give_gradient(input_, input_gradient_);
    no_shift_ = builder.acquire(shape_.padded_channels() * static_cast<int64_t>(sizeof(float)));
  }

  void backward(Run& run) override {
    if (gradients_.empty()) return;
    if (activation_ != UnitActivation::kNone) pass_activation(run);
    if (!input_gradient_.valid()) return;
    auto* const no_shift = run.at<float>(no_shift_);
    std::fill_n(no_shift, shape_.padded_channels(), 0.0F);
    scale_shift({.shape = shape_,
                 .dtype = dtype_,
                 .input = run.at(passed_),
                 .scale = run.at<float>(constants_),
                 .shift = no_shift,
                 .output = run.at(input_gradient_)});
  }

 private:
  bool input_needs_gradient(const PlanBuilder& builder) const { return builder.needs_gradient(input_); }
  bool residual_needs_gradient(const PlanBuilder& builder) const {
    return residual_ >= 0 && builder.needs_gradient(residual_);
  }

  // Computes d.
  void pass_activation(const Run& run) const {
    ActivationBackward a{.shape = shape_,
                         .dtype = dtype_,
                         .activation = activation_,
                         .gradient_count = static_cast<int>(gradients_.size()),
                         .input = run.at(kept_),
                         .input_gradient = run.at(passed_)};
    for (size_t i = 0; i < gradients_.size(); ++i) a.gradients[i] = run.at(gradients_[i]);
    if (activation_input_.valid()) {
      // Only ReLU follows an addition, so that no residual is missing here.
      apply(run, UnitActivation::kNone, kept_, {}, activation_input_, run.at<float>(constants_));
      a.input = run.at(activation_input_);
    }
    activation_backward(a);
  }

  void apply(const Run& run, UnitActivation activation, BufferId input, BufferId residual, BufferId output,
             const float* constants) const {
    scale_shift({.shape = shape_,
                 .dtype = dtype_,
                 .activation = activation,
                 .input = run.at(input),
                 .residual = run.at(residual),
                 .scale = constants,
                 .shift = constants + shape_.padded_channels(),
                 .output = run.at(output)});
  }

  // Writes the factors of all channels, then the shifts.
  void fold(float* constants) {
    const NormConstants norm = norm_constants(node_, context_);
    const auto padded = static_cast<size_t>(shape_.padded_channels());
    std::fill_n(constants, 2 * padded, 0.0F);
    for (size_t c = 0; c < norm.factor.size(); ++c) {
      constants[c] = static_cast<float>(norm.factor[c]);
      constants[padded + c] = static_cast<float>(norm.shift[c]);
    }
    largest_magnitude({.count = static_cast<int64_t>(padded), .values = constants, .result = &largest_factor_});
    largest_magnitude({.count = static_cast<int64_t>(padded), .values = constants + padded, .result = &largest_shift_});
  }

  UnitActivation activation_ = UnitActivation::kNone;
  ValueId input_ = -1, residual_ = -1, output_ = -1;
  MapShape shape_;
  DataType dtype_ = DataType::kFloat;
  BufferId input_data_, residual_data_, output_data_;
  // The factors, then the shifts: in training a pass has its own, since values may change before its backward.
  BufferId constants_;
  PackedWeights kept_constants_;  // of inference
  float largest_factor_ = kUnbounded, largest_shift_ = kUnbounded;
  uint64_t forwards_ = 0;
  std::vector<BufferId> gradients_;
  BufferId kept_, activation_input_;  // what kept() names; u, where the activation's derivative is not that of ReLU
  BufferId passed_, input_gradient_;  // d; the input's
  BufferId no_shift_;
};

}  // namespace

void make_running_norm(PlanBuilder& builder, const Unit& unit) {
  auto step = std::make_unique<RunningNormStep>(builder, unit);
  builder.set_value(unit.tail(), step->output());
  std::string kernel = builder.training() ? "batch norm, frozen" : "batch norm";
  if (unit.add >= 0) kernel += " + add";
  if (unit.activation >= 0) kernel += " + activation";
  builder.add_step(std::move(step), unit.nodes, std::move(kernel));
}

}  // namespace trainyard::nn::cpu
