// Batch norm with the addition and the activation behind it.
#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "trainyard/nn/cpu/convolution/packed_weights.h"
#include "trainyard/nn/cpu/kernels/kernels.h"
#include "trainyard/nn/cpu/kernels/magnitude.h"
#include "trainyard/nn/cpu/plan/nan_guard.h"
#include "trainyard/nn/cpu/plan/norm_constants.h"
#include "trainyard/nn/cpu/plan/steps.h"

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
    mean_buffer_ = set.buffer(builder.buffer(node_, 0));
    variance_buffer_ = set.buffer(builder.buffer(node_, 1));

    input_ = builder.map_of(node_.inputs[0]);
    if (unit.residual >= 0) residual_ = builder.map_of(unit.residual);
    builder.use_value(input_);
    if (residual_ >= 0) builder.use_value(residual_);
    output_ = builder.new_map(node_.shape, true);
    shape_ = builder.value(output_).map;
    dtype_ = builder.dtype();
    input_data_ = builder.value(input_).data;
    if (residual_ >= 0) residual_data_ = builder.value(residual_).data;
    output_data_ = builder.value(output_).data;
    const int64_t vector = shape_.padded_channels() * static_cast<int64_t>(sizeof(float));
    if (context_.mode == Mode::kInference) {
      constants_ = PackedWeights(2 * vector);
      return;
    }
    for (BufferId* id : {&mean_, &variance_, &scale_, &shift_}) *id = builder.acquire(vector);
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
    if (context_.mode == Mode::kTraining) {
      norm_forward({.shape = shape_,
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
                    .shift = run.at<float>(shift_)});
      update_running_statistics(run);
      return;
    }
    // Training changes statistics without a new version of the set. Frozen ones change with the version only.
    const uint64_t version = context_.frozen ? context_.parameters->version() : ++forwards_;
    const auto* const scale =
        static_cast<const float*>(constants_.get(version, [&](void* target) { fold(static_cast<float*>(target)); }));
    apply(run, input_data_, residual_data_, output_data_, scale, scale + shape_.padded_channels());
  }

  float bound(const Run& run) const override {
    const float added = residual_ >= 0 ? run.bounds[static_cast<size_t>(residual_)] : 0;
    if (context_.mode == Mode::kTraining) {
      return bound_behind((bound_of_statistics(run) + added) * kRoundingUp, activation_);
    }
    return bound_behind(
        (run.bounds[static_cast<size_t>(input_)] * largest_factor_ + largest_shift_ + added) * kRoundingUp,
        activation_);
  }

  Remake remake() const override { return Remake::kCheap; }
  std::function<void(Run&)> plan_again(PlanBuilder& builder, const std::vector<ValueId>& sources) override {
    const BufferId input = builder.data(sources[0]);
    const BufferId residual = residual_ >= 0 ? builder.data(sources[1]) : BufferId{};
    for (BufferId id : {scale_, shift_}) builder.use(id);
    return [this, input, residual, output = builder.renew(output_)](Run& run) {
      apply(run, input, residual, output, run.at<float>(scale_), run.at<float>(shift_));
    };
  }

  void plan_backward(PlanBuilder& builder) override {
    gradients_ = builder.take_gradients(output_, kMaxGradients);
    if (gradients_.empty()) return;
    for (BufferId id : {mean_, variance_, scale_, shift_, mask_}) builder.use(id);
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
    if (own.valid()) {
      input_gradient_ = own;
      builder.give_gradient(input_, own);
    } else {
      input_gradient_ = builder.give_gradient(input_, false).buffer;
    }
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
    norm_backward(a);
    if (op_.scale) send(weight_, run.at<float>(weight_gradient_));
    send(bias_, run.at<float>(bias_gradient_));
  }

 private:
  void apply(const Run& run, BufferId input, BufferId residual, BufferId output, const float* scale,
             const float* shift) const {
    scale_shift({.shape = shape_,
                 .dtype = dtype_,
                 .activation = activation_,
                 .input = run.at(input),
                 .residual = run.at(residual),
                 .scale = scale,
                 .shift = shift,
                 .output = run.at(output)});
  }

  // No element is further from its channel's mean than the deviation times the square root of their count.
  float bound_of_statistics(const Run& run) const {
    const auto count = static_cast<float>(shape_.batch * shape_.pixels());
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

  // As the reference executor: with the unbiased variance, which counts as 0 for a single value.
  void update_running_statistics(const Run& run) const {
    const double count = static_cast<double>(shape_.batch * shape_.pixels());
    const double unbiased = count > 1 ? count / (count - 1) : 0;
    const auto decay = static_cast<float>(op_.decay);
    float* const mean = mean_buffer_.data_ptr<float>();
    float* const variance = variance_buffer_.data_ptr<float>();
    for (int64_t c = 0; c < shape_.channels; ++c) {
      mean[c] = decay * mean[c] + static_cast<float>(1 - op_.decay) * run.at<float>(mean_)[c];
      variance[c] = decay * variance[c] + static_cast<float>((1 - op_.decay) * unbiased) * run.at<float>(variance_)[c];
    }
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

  const Unit unit_;
  const Node& node_;
  const BatchNorm& op_;
  const BuildContext& context_;
  UnitActivation activation_ = UnitActivation::kNone;
  ParameterId weight_, bias_;
  at::Tensor mean_buffer_, variance_buffer_;
  ValueId input_ = -1, residual_ = -1, output_ = -1;
  MapShape shape_;
  DataType dtype_ = DataType::kFloat;
  BufferId input_data_, residual_data_, output_data_, kept_input_, mask_, mean_, variance_, scale_, shift_;
  std::vector<BufferId> gradients_;
  PackedWeights constants_;  // of inference
  float largest_factor_ = kUnbounded, largest_shift_ = kUnbounded;
  uint64_t forwards_ = 0;
  BufferId masked_, input_gradient_, weight_gradient_, bias_gradient_;
};

}  // namespace

void make_norm(PlanBuilder& builder, const Unit& unit) {
  auto step = std::make_unique<NormStep>(builder, unit);
  builder.set_value(unit.tail(), step->output());
  std::string kernel = "batch norm";
  if (unit.add >= 0) kernel += " + add";
  if (unit.activation >= 0) kernel += " + activation";
  builder.add_step(std::move(step), unit.nodes, std::move(kernel));
}

}  // namespace trainyard::nn::cpu
