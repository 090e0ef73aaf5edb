// Batch norm with the addition and the activation behind it, normalized with the batch's statistics, or with those of
// the batches of all replicas. running_norm_step.cpp has the one that takes the running statistics.
#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/steps.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/sync_batch_norm.h"

namespace trainyard::nn::cpu {
namespace {

class NormStep : public PlanStep {
 public:
  NormStep(PlanBuilder& builder, const Unit& unit)
      : unit_(unit),
        node_(builder.graph().nodes[static_cast<size_t>(unit.head())]),
        op_(std::get<BatchNorm>(node_.op)),
        context_(builder.context()) {
    if (unit.activation >= 0) {
      const Node& activation = builder.graph().nodes[static_cast<size_t>(unit.activation)];
      activation_ = unit_activation(std::get<Activation>(activation.op).function);
    }
    ParameterSet& set = *context_.parameters;
    if (op_.scale) weight_ = builder.parameter(node_, 0);
    bias_ = builder.parameter(node_, op_.scale ? 1 : 0);
    trains_weight_ = op_.scale && builder.trains(weight_);
    trains_bias_ = builder.trains(bias_);
    mean_buffer_ = set.buffer(builder.buffer(node_, 0));
    variance_buffer_ = set.buffer(builder.buffer(node_, 1));

    input_ = builder.map_of(node_.inputs[0]);
    if (unit.residual >= 0) residual_ = builder.map_of(unit.residual);
    builder.use_value(input_);
    if (residual_ >= 0) builder.use_value(residual_);
    const bool inputs_need_gradient =
        builder.needs_gradient(input_) || (residual_ >= 0 && builder.needs_gradient(residual_));
    output_ = builder.new_map(node_.shape, builder.trains(node_) || inputs_need_gradient);
    shape_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    input_data_ = builder.value(input_).data;
    if (residual_ >= 0) residual_data_ = builder.value(residual_).data;
    output_data_ = builder.value(output_).data;
    const int64_t vector = shape_.padded_channels() * static_cast<int64_t>(sizeof(float));
    for (BufferId* id : {&mean_, &variance_, &scale_, &shift_}) *id = builder.acquire(vector);
    if (exchanges()) exchanged_ = builder.acquire((2 * shape_.channels + 1) * static_cast<int64_t>(sizeof(double)));
    if (residual_ >= 0 && activation_ == UnitActivation::kRelu && builder.options().gradients) {
      mask_ = builder.acquire(shape_.elements() / 8);
    }
  }

  ValueId output() const override { return output_; }
  std::vector<ValueId> inputs() const override {
    return residual_ >= 0 ? std::vector<ValueId>{input_, residual_} : std::vector<ValueId>{input_};
  }
  std::vector<ValueId> kept() const override { return {input_}; }

  void forward(Run& run) override {
    const NormForward a{.shape = shape_,
                        .dtype = dtype_,
                        .activation = activation_,
                        .epsilon = op_.epsilon,
                        .input = run.at(input_data_),
                        .residual = run.at(residual_data_),
                        .weight = weight(),
                        .bias = bias(),
                        .output = run.at(output_data_),
                        .mask = run.at<uint8_t>(mask_),
                        .mean = run.at<float>(mean_),
                        .variance = run.at<float>(variance_),
                        .scale = run.at<float>(scale_),
                        .shift = run.at<float>(shift_),
                        .moments = run.at<double>(exchanged_)};
    if (exchanges()) {
      // Between the two passes, outside of the kernels: only this thread may meet others, and it may throw.
      norm_moments(a);
      a.moments[2 * shape_.channels] = own_count();
      context_.sync_batch_norm->all_reduce_moments(exchanged(run, 2 * shape_.channels + 1));
      norm_with_moments(a);
    } else {
      norm_forward(a);
    }
    update_running_statistics(run);
  }

  float bound(const Run& run) const override {
    const float added = residual_ >= 0 ? run.bounds[static_cast<size_t>(residual_)] : 0;
    return bound_behind((bound_of_statistics(run) + added) * kRoundingUp, activation_);
  }

  RecomputeCost recompute_cost() const override { return RecomputeCost::kCheap; }
  std::function<void(Run&)> plan_recompute(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    const BufferId input = builder.data(sources[0]);
    const BufferId residual = residual_ >= 0 ? builder.data(sources[1]) : BufferId{};
    for (BufferId id : {scale_, shift_}) builder.use(id);
    return [this, input, residual, output = builder.new_buffer(output_)](Run& run) {
      scale_shift({.shape = shape_,
                   .dtype = dtype_,
                   .activation = activation_,
                   .input = run.at(input),
                   .residual = run.at(residual),
                   .scale = run.at<float>(scale_),
                   .shift = run.at<float>(shift_),
                   .output = run.at(output)});
    };
  }

  void plan_backward(PlanBuilder& builder) override {
    gradients_ = builder.take_gradients(output_, kMaxGradients);
    if (gradients_.empty()) return;
    for (BufferId id : {mean_, variance_, scale_, shift_, mask_, exchanged_}) builder.use(id);
    kept_input_ = builder.data(input_);
    const int64_t vector = shape_.padded_channels() * static_cast<int64_t>(sizeof(float));
    weight_gradient_ = builder.acquire(vector);
    bias_gradient_ = builder.acquire(vector);
    BufferId own;
    for (BufferId gradient : gradients_) {
      if (builder.may_overwrite(gradient)) own = gradient;
    }
    if (residual_ >= 0 && builder.needs_gradient(residual_)) {
      // Without an activation, a single gradient is the residual's, too.
      if (activation_ == UnitActivation::kNone && gradients_.size() == 1) {
        builder.give_gradient(residual_, gradients_[0]);
        own = {};
      } else {
        masked_ = own.valid() ? own : builder.acquire(builder.bytes_of(output_));
        builder.give_gradient(residual_, masked_);
        own = {};
      }
    }
    // The kernel computes the input's gradient in any case.
    input_gradient_ = own.valid() ? own : builder.acquire(builder.bytes_of(input_));
    if (builder.needs_gradient(input_)) builder.give_gradient(input_, input_gradient_);
  }

  void backward(Run& run) override {
    if (gradients_.empty()) return;
    NormBackward a{.shape = shape_,
                   .dtype = dtype_,
                   .activation = activation_,
                   .epsilon = op_.epsilon,
                   .gradient_count = static_cast<int>(gradients_.size()),
                   .input = run.at(kept_input_),
                   .mask = run.at<uint8_t>(mask_),
                   .mean = run.at<float>(mean_),
                   .variance = run.at<float>(variance_),
                   .scale = run.at<float>(scale_),
                   .shift = run.at<float>(shift_),
                   .masked = run.at(masked_),
                   .input_gradient = run.at(input_gradient_),
                   .weight_gradient = run.at<float>(weight_gradient_),
                   .bias_gradient = run.at<float>(bias_gradient_)};
    for (size_t i = 0; i < gradients_.size(); ++i) a.gradients[i] = run.at(gradients_[i]);
    if (exchanges()) {
      a.sums = run.at<double>(exchanged_);
      a.count = count(run);
      norm_gradient_sums(a);
      context_.sync_batch_norm->all_reduce_sum(exchanged(run, 2 * shape_.channels));
      norm_backward_with_sums(a);
    } else {
      norm_backward(a);
    }
    if (trains_weight_) send(weight_, run.at<float>(weight_gradient_));
    if (trains_bias_) send(bias_, run.at<float>(bias_gradient_));
  }

 private:
  bool exchanges() const { return context_.sync_batch_norm != nullptr; }
  double own_count() const { return static_cast<double>(shape_.batch * shape_.pixels()); }
  // Returns the number of values in a channel that the statistics are of. After forward().
  double count(const Run& run) const {
    return exchanges() ? run.at<double>(exchanged_)[2 * shape_.channels] : own_count();
  }
  at::Tensor exchanged(const Run& run, int64_t values) const {
    return at::from_blob(run.at<double>(exchanged_), {values}, at::kDouble);
  }

  // No element is further from its channel's mean than the deviation times the square root of their count.
  float bound_of_statistics(const Run& run) const {
    const auto count = static_cast<float>(this->count(run));
    const auto *const mean = run.at<float>(mean_), *const variance = run.at<float>(variance_),
                      *const scale = run.at<float>(scale_), *const shift = run.at<float>(shift_);
    float largest = 0;
    for (int64_t c = 0; c < shape_.channels; ++c) {
      const float one =
          (std::fabs(mean[c]) + std::sqrt(variance[c] * count)) * std::fabs(scale[c]) + std::fabs(shift[c]);
      if (!(one <= largest)) largest = std::isfinite(one) ? one : kUnbounded;
    }
    return largest;
  }

  const float* weight() const {
    return op_.scale ? context_.parameters->value(weight_).const_data_ptr<float>() : nullptr;
  }
  const float* bias() const { return context_.parameters->value(bias_).const_data_ptr<float>(); }

  void send(ParameterId id, float* gradient) const {
    context_.gradients->write(id, at::from_blob(gradient, {shape_.channels}, at::kFloat));
  }

  void update_running_statistics(const Run& run) const {
    const double factor = running_variance_factor(op_, count(run));
    const auto decay = static_cast<float>(op_.decay);
    float* const mean = mean_buffer_.data_ptr<float>();
    float* const variance = variance_buffer_.data_ptr<float>();
    for (int64_t c = 0; c < shape_.channels; ++c) {
      mean[c] = decay * mean[c] + static_cast<float>(1 - op_.decay) * run.at<float>(mean_)[c];
      variance[c] = decay * variance[c] + static_cast<float>((1 - op_.decay) * factor) * run.at<float>(variance_)[c];
    }
  }

  const Unit unit_;
  const Node& node_;
  const BatchNorm& op_;
  const BuildContext& context_;
  UnitActivation activation_ = UnitActivation::kNone;
  ParameterId weight_, bias_;
  bool trains_weight_ = false, trains_bias_ = false;
  at::Tensor mean_buffer_, variance_buffer_;
  ValueId input_ = -1, residual_ = -1, output_ = -1;
  MapShape shape_;
  DataType dtype_ = DataType::kFloat;
  BufferId input_data_, residual_data_, output_data_, kept_input_, mask_, mean_, variance_, scale_, shift_;
  // [2 channels + 1] double: the moments, in the backward the gradient's sums, and behind them the count of both.
  BufferId exchanged_;
  std::vector<BufferId> gradients_;
  BufferId masked_, input_gradient_, weight_gradient_, bias_gradient_;
};

}  // namespace

void make_norm(PlanBuilder& builder, const Unit& unit) {
  // A norm that is frozen as a whole does as in inference, whether gradients are wanted or not.
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  if (!builder.training() || !builder.layer(node).trains()) return make_running_norm(builder, unit);
  auto step = std::make_unique<NormStep>(builder, unit);
  builder.set_value(unit.tail(), step->output());
  std::string kernel = "batch norm";
  if (unit.add >= 0) kernel += " + add";
  if (unit.activation >= 0) kernel += " + activation";
  builder.add_step(std::move(step), unit.nodes, std::move(kernel));
}

}  // namespace trainyard::nn::cpu
