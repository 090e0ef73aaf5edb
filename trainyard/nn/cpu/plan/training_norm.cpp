#include "trainyard/nn/cpu/plan/training_norm.h"

#include <cmath>

#include <ATen/ops/from_blob.h>

#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/sync_batch_norm.h"

namespace trainyard::nn::cpu {

TrainingNorm::TrainingNorm(PlanBuilder& builder, const Unit& unit, const MapShape& shape)
    : op_(std::get<BatchNorm>(builder.graph().nodes[static_cast<size_t>(unit.head())].op)),
      context_(builder.context()),
      shape_(shape) {
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  if (unit.activation >= 0) {
    const Node& activation = builder.graph().nodes[static_cast<size_t>(unit.activation)];
    activation_ = unit_activation(std::get<Activation>(activation.op).function);
  }
  ParameterSet& set = *context_.parameters;
  if (op_.scale) weight_ = builder.parameter(node, 0);
  bias_ = builder.parameter(node, op_.scale ? 1 : 0);
  trains_weight_ = op_.scale && builder.trains(weight_);
  trains_bias_ = builder.trains(bias_);
  mean_buffer_ = set.buffer(builder.buffer(node, 0));
  variance_buffer_ = set.buffer(builder.buffer(node, 1));
  const int64_t vector = shape_.padded_channels() * int64_t{sizeof(float)};
  for (BufferId* id : {&mean_, &variance_, &scale_, &shift_}) *id = builder.acquire(vector);
}

NormForward TrainingNorm::forward(const Run& run) const {
  const ParameterSet& set = *context_.parameters;
  return {.shape = shape_,
          .activation = activation_,
          .epsilon = op_.epsilon,
          .weight = op_.scale ? set.value(weight_).const_data_ptr<float>() : nullptr,
          .bias = set.value(bias_).const_data_ptr<float>(),
          .mean = run.at<float>(mean_),
          .variance = run.at<float>(variance_),
          .scale = run.at<float>(scale_),
          .shift = run.at<float>(shift_)};
}

NormBackward TrainingNorm::backward(const Run& run) const {
  return {.shape = shape_,
          .activation = activation_,
          .epsilon = op_.epsilon,
          .mean = run.at<float>(mean_),
          .variance = run.at<float>(variance_),
          .scale = run.at<float>(scale_),
          .shift = run.at<float>(shift_),
          .weight_gradient = run.at<float>(weight_gradient_),
          .bias_gradient = run.at<float>(bias_gradient_)};
}

void TrainingNorm::plan_backward(PlanBuilder& builder) {
  for (BufferId id : {mean_, variance_, scale_, shift_}) builder.use(id);
  const int64_t vector = shape_.padded_channels() * int64_t{sizeof(float)};
  weight_gradient_ = builder.acquire(vector);
  bias_gradient_ = builder.acquire(vector);
}

void TrainingNorm::use_factors(PlanBuilder& builder) const {
  for (BufferId id : {scale_, shift_}) builder.use(id);
}

void TrainingNorm::send_gradients(const Run& run) const {
  if (trains_weight_) send(weight_, run.at<float>(weight_gradient_));
  if (trains_bias_) send(bias_, run.at<float>(bias_gradient_));
}

void TrainingNorm::send(ParameterId id, float* gradient) const {
  context_.gradients->write(id, at::from_blob(gradient, {shape_.channels}, at::kFloat));
}

void TrainingNorm::update_running_statistics(const Run& run, double count) const {
  const double factor = running_variance_factor(op_, count);
  const auto decay = static_cast<float>(op_.decay);
  float* const mean = mean_buffer_.data_ptr<float>();
  float* const variance = variance_buffer_.data_ptr<float>();
  for (int64_t c = 0; c < shape_.channels; ++c) {
    mean[c] = decay * mean[c] + static_cast<float>(1 - op_.decay) * run.at<float>(mean_)[c];
    variance[c] = decay * variance[c] + static_cast<float>((1 - op_.decay) * factor) * run.at<float>(variance_)[c];
  }
}

// No element is further from its channel's mean than the deviation times the square root of their count.
float TrainingNorm::bound(const Run& run, double count) const {
  const auto values = static_cast<float>(count);
  const auto *const mean = run.at<float>(mean_), *const variance = run.at<float>(variance_),
                    *const scale = run.at<float>(scale_), *const shift = run.at<float>(shift_);
  float largest = 0;
  for (int64_t c = 0; c < shape_.channels; ++c) {
    const float one =
        (std::fabs(mean[c]) + std::sqrt(variance[c] * values)) * std::fabs(scale[c]) + std::fabs(shift[c]);
    if (!(one <= largest)) largest = std::isfinite(one) ? one : kUnbounded;
  }
  return largest;
}

}  // namespace trainyard::nn::cpu
