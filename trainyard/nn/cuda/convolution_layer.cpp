// A convolution with its bias and ReLU: cuDNN's through ATen, bias and activation in one pass behind it.
#include <array>
#include <utility>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>

#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/nn/cuda/held.h"
#include "trainyard/nn/cuda/unit_layer.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/libtorch_convolution.h"

namespace trainyard::nn::cuda {
namespace {

class ConvolutionLayer : public UnitLayer {
 public:
  ConvolutionLayer(const LayerContext& context, const Unit& unit)
      : context_(context),
        op_(std::get<Convolution>(context.node(unit.head()).op)),
        nonlinearity_(nonlinearity_of(context, unit)) {
    const Node& node = context.node(unit.head());
    const Shape& image = context.node(node.inputs[0]).shape;
    padding_ = resolve_padding(op_.padding, {image[1], image[2]}, op_.kernel, op_.stride, op_.dilation);
    symmetric_ = padding_.top == padding_.bottom && padding_.left == padding_.right;
    weight_id_ = context.parameter(node, 0);
    weight_ = context.weights.add(weight_id_);
    if (op_.bias) bias_id_ = context.parameter(node, 1);
  }

  at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom&) override;
  at::Tensor forward(AutogradContext* autograd, const at::Tensor& input);
  variable_list backward(AutogradContext& autograd, const at::Tensor& output_gradient);

 private:
  // The gradient in front of bias and activation; writes the bias's.
  at::Tensor inner_gradient(const at::Tensor& dy, const at::Tensor& y);
  // [out, in / groups, height, width], also of the linear form, whose own has two dimensions.
  at::Tensor weight() const {
    const at::Tensor& own = context_.weights.at(weight_);
    return own.dim() == 2 ? own.view({own.size(0), own.size(1), 1, 1}) : own;
  }

  const LayerContext& context_;
  const Convolution& op_;
  const Nonlinearity nonlinearity_;
  Padding padding_;
  bool symmetric_ = true;  // else the image is padded first: cuDNN pads both sides alike
  ParameterId weight_id_, bias_id_;
  int weight_ = 0;   // in context_.weights
  at::Tensor bias_;  // [out] float of the set; undefined: none
};

struct ConvolutionFunction : torch::autograd::Function<ConvolutionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& /*anchor*/,
                            ConvolutionLayer* layer) {
    hold(*context, layer);
    return layer->forward(context, x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return held<ConvolutionLayer*>(*context)->backward(*context, gradients[0]);
  }
};

at::Tensor ConvolutionLayer::run(std::span<const at::Tensor> inputs, const StepRandom&) {
  if (op_.bias && !bias_.defined()) bias_ = context_.build.parameters->value(bias_id_);
  if (context_.training()) return ConvolutionFunction::apply(inputs[0], context_.anchor, this);
  return forward(nullptr, inputs[0]);
}

// autograd null: inference.
at::Tensor ConvolutionLayer::forward(AutogradContext* autograd, const at::Tensor& input) {
  at::Tensor x = channels_innermost(input);
  std::array<int64_t, 2> pad{padding_.top, padding_.left};
  if (!symmetric_) {
    x = channels_innermost(at::constant_pad_nd(x, {padding_.left, padding_.right, padding_.top, padding_.bottom}));
    pad = {0, 0};
  }
  const at::Tensor y = channels_innermost(libtorch_convolution(op_, pad, x, weight(), {}));
  if (op_.bias || nonlinearity_.present) {
    scale_shift_activate(row_shape({y}), y.const_data_ptr(), nullptr, {.offset = pointer<float>(bias_)}, nonlinearity_,
                         y.data_ptr(), core::cuda::current_stream());
  }
  if (autograd != nullptr) autograd->save_for_backward({x, nonlinearity_.present ? y : at::Tensor()});
  return y;
}

at::Tensor ConvolutionLayer::inner_gradient(const at::Tensor& dy, const at::Tensor& y) {
  if (!op_.bias && !nonlinearity_.present) return dy;
  const RowShape shape = row_shape({dy, y});
  const at::Tensor g = nonlinearity_.present ? at::empty_like(dy) : dy;
  const at::Tensor partial = op_.bias ? partial_sums(shape, dy) : at::Tensor();
  gradient_moments(shape, {.output_gradient = dy.const_data_ptr(), .y = pointer(y), .nonlinearity = nonlinearity_},
                   nonlinearity_.present ? g.data_ptr() : nullptr, pointer<float>(partial),
                   core::cuda::current_stream());
  if (op_.bias) {
    finish_gradients(shape, pointer<float>(partial),
                     {.bias = context_.gradient(bias_id_), .add_bias = context_.adds(bias_id_)},
                     core::cuda::current_stream());
    context_.wrote(bias_id_);
  }
  return g;
}

variable_list ConvolutionLayer::backward(AutogradContext& autograd, const at::Tensor& output_gradient) {
  const variable_list saved = autograd.get_saved_variables();
  const at::Tensor& x = saved[0];
  const at::Tensor g = inner_gradient(channels_innermost(output_gradient), saved[1]);
  const bool wants_input = autograd.needs_input_grad(0), wants_weight = context_.gradients();
  const std::array<int64_t, 2> pad =
      symmetric_ ? std::array<int64_t, 2>{padding_.top, padding_.left} : std::array<int64_t, 2>{0, 0};
  auto [dx, dw] = libtorch_convolution_backward(op_, pad, g, x, weight(), wants_input, wants_weight);
  if (wants_weight) context_.build.gradients->write(weight_id_, dw.reshape(context_.weights.at(weight_).sizes()));
  if (wants_input && !symmetric_) {
    dx = at::constant_pad_nd(dx, {-padding_.left, -padding_.right, -padding_.top, -padding_.bottom});
  }
  return {dx, at::Tensor(), at::Tensor()};
}

}  // namespace

std::unique_ptr<UnitLayer> make_convolution_layer(const LayerContext& context, const Unit& unit) {
  return make_layer_of<ConvolutionLayer, Convolution>(context, unit);
}

}  // namespace trainyard::nn::cuda
