// Batch norm with the addition and the activation behind it.
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/nn/cuda/held.h"
#include "trainyard/nn/cuda/unit_layer.h"

namespace trainyard::nn::cuda {
namespace {

class NormLayer : public UnitLayer {
 public:
  NormLayer(const LayerContext& context, const Unit& unit)
      : context_(context),
        node_(context.node(unit.head())),
        op_(std::get<BatchNorm>(node_.op)),
        nonlinearity_(nonlinearity_of(context, unit)) {}

  at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom&) override { return run_for(1, inputs).front(); }
  std::array<at::Tensor, 2> run_for_readers(std::span<const at::Tensor> inputs, const StepRandom&) override {
    const variable_list outputs = run_for(2, inputs);
    return {outputs.front(), outputs.size() > 1 ? outputs[1] : at::Tensor()};
  }

  at::Tensor forward(AutogradContext* autograd, const at::Tensor& input, const at::Tensor& other);
  variable_list backward(AutogradContext& autograd, const variable_list& output_gradients);

 private:
  void bind();
  variable_list run_for(int readers, std::span<const at::Tensor> inputs);

  const LayerContext& context_;
  const Node& node_;
  const BatchNorm& op_;
  const Nonlinearity nonlinearity_;
  ParameterId weight_id_, bias_id_;
  at::Tensor weight_, bias_, running_mean_, running_variance_;  // weight undefined: 1
};

struct NormFunction : torch::autograd::Function<NormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& residual,
                               const std::optional<at::Tensor>& /*anchor*/, NormLayer* layer, int readers) {
    hold(*context, layer);
    context->set_materialize_grads(false);  // of two readers one may have no gradient to give
    variable_list outputs{layer->forward(context, x, residual.value_or(at::Tensor()))};
    if (readers > 1) outputs.push_back(outputs.front().detach());  // the same memory
    return outputs;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return held<NormLayer*>(*context)->backward(*context, gradients);
  }
};

void NormLayer::bind() {
  const ParameterSet& set = *context_.build.parameters;
  if (op_.scale) {
    weight_id_ = context_.parameter(node_, 0);
    weight_ = set.value(weight_id_);
  }
  bias_id_ = context_.parameter(node_, op_.scale ? 1 : 0);
  bias_ = set.value(bias_id_);
  running_mean_ = context_.buffer(node_, 0);
  running_variance_ = context_.buffer(node_, 1);
}

variable_list NormLayer::run_for(int readers, std::span<const at::Tensor> inputs) {
  if (!bias_.defined()) bind();
  const std::optional<at::Tensor> residual = inputs.size() > 1 ? std::optional(inputs[1]) : std::nullopt;
  if (context_.training()) return NormFunction::apply(inputs[0], residual, context_.anchor, this, readers);
  return {forward(nullptr, inputs[0], residual.value_or(at::Tensor()))};
}

// autograd null: inference.
at::Tensor NormLayer::forward(AutogradContext* autograd, const at::Tensor& input, const at::Tensor& other) {
  const at::Tensor x = channels_innermost(input);
  const at::Tensor residual = other.defined() ? channels_innermost(other) : other;
  const at::Tensor y = at::empty_like(x);
  const RowShape shape = row_shape({x, residual, y});
  const cudaStream_t stream = core::cuda::current_stream();
  const at::TensorOptions options = x.options().dtype(at::kFloat);
  at::Tensor constants;
  ChannelAffine affine{.offset = pointer<float>(bias_)};
  if (autograd == nullptr) {
    constants = at::empty({1, shape.channels}, options);  // scale
    inference_scale(shape.channels, pointer<float>(weight_), pointer<float>(running_variance_), op_.epsilon,
                    pointer<float>(constants), stream);
    affine.center = pointer<float>(running_mean_);
    affine.scale = pointer<float>(constants);
  } else {
    constants = at::empty({3, shape.channels}, options);  // mean, inverse deviation, scale
    auto* const mean = pointer<float>(constants);
    const at::Tensor partial = partial_sums(shape, x);
    moments(shape, x.const_data_ptr(), pointer<float>(partial), stream);
    finish_moments(shape, x.const_data_ptr(), pointer<float>(partial),
                   {.weight = pointer<float>(weight_),
                    .epsilon = op_.epsilon,
                    .decay = op_.decay,
                    .running_variance_factor = running_variance_factor(op_, static_cast<double>(shape.rows)),
                    .mean = mean,
                    .inverse_deviation = mean + shape.channels,
                    .scale = mean + 2 * shape.channels,
                    .running_mean = pointer<float>(running_mean_),
                    .running_variance = pointer<float>(running_variance_)},
                   stream);
    affine.center = mean;
    affine.scale = mean + 2 * shape.channels;
  }
  scale_shift_activate(shape, x.const_data_ptr(), pointer(residual), affine, nonlinearity_, y.data_ptr(), stream);
  if (autograd != nullptr) {
    // Without a residual the activation's input is made again from x.
    const bool keeps_output = residual.defined() && nonlinearity_.present;
    autograd->saved_data["residual"] = residual.defined();
    autograd->save_for_backward({x, constants, keeps_output ? y : at::Tensor()});
  }
  return y;
}

variable_list NormLayer::backward(AutogradContext& autograd, const variable_list& output_gradients) {
  variable_list gradients;
  for (const at::Tensor& gradient : output_gradients) {
    if (gradient.defined()) gradients.push_back(channels_innermost(gradient));
  }
  if (gradients.empty()) return variable_list(5);
  const variable_list saved = autograd.get_saved_variables();
  const at::Tensor &x = saved[0], &constants = saved[1], &y = saved[2];
  const bool has_residual = autograd.saved_data["residual"].toBool();
  const at::Tensor &dy = gradients.front(), second = gradients.size() > 1 ? gradients[1] : at::Tensor();
  const RowShape shape = row_shape({x, y, dy, second});
  const cudaStream_t stream = core::cuda::current_stream();
  auto* const mean = pointer<float>(constants);
  const float* const inverse_deviation = mean + shape.channels;
  ActivationGradient of{.output_gradient = dy.const_data_ptr(),
                        .second_gradient = pointer(second),
                        .x = x.const_data_ptr(),
                        .y = pointer(y),
                        .affine = {.center = mean, .scale = mean + 2 * shape.channels, .offset = pointer<float>(bias_)},
                        .nonlinearity = nonlinearity_};

  // The residual's gradient is the one in front of the activation; the second pass then reads it instead of dy and y.
  const bool writes_gradient = has_residual && (nonlinearity_.present || second.defined());
  const at::Tensor g = writes_gradient ? at::empty_like(dy) : at::Tensor();
  const at::Tensor partial = partial_sums(shape, x);
  gradient_moments(shape, of, pointer(g), pointer<float>(partial), stream);

  const bool wants_input = autograd.needs_input_grad(0);
  const at::Tensor coefficients = wants_input ? at::empty({2, shape.channels}, constants.options()) : at::Tensor();
  ParameterGradients parameters{.inverse_deviation = inverse_deviation, .coefficients = pointer<float>(coefficients)};
  if (op_.scale) {
    parameters.weight = context_.gradient(weight_id_);
    parameters.add_weight = context_.adds(weight_id_);
  }
  parameters.bias = context_.gradient(bias_id_);
  parameters.add_bias = context_.adds(bias_id_);
  finish_gradients(shape, pointer<float>(partial), parameters, stream);
  if (op_.scale) context_.wrote(weight_id_);
  context_.wrote(bias_id_);

  at::Tensor dx;
  if (wants_input) {
    dx = at::empty_like(x);
    if (g.defined()) {
      of.output_gradient = g.const_data_ptr();
      of.second_gradient = nullptr;
      of.y = nullptr;
      of.nonlinearity.present = false;
    }
    input_gradient(shape, of, pointer<float>(coefficients), dx.data_ptr(), stream);
  }
  const at::Tensor residual_gradient = !has_residual ? at::Tensor() : g.defined() ? g : dy;
  return {dx, residual_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
}

}  // namespace

std::unique_ptr<UnitLayer> make_norm_layer(const LayerContext& context, const Unit& unit) {
  return make_layer_of<NormLayer, BatchNorm>(context, unit);
}

}  // namespace trainyard::nn::cuda
