// A linear layer: cuBLAS through ATen.
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "trainyard/nn/cuda/held.h"
#include "trainyard/nn/cuda/unit_layer.h"
#include "trainyard/nn/execution/gradient_sink.h"

namespace trainyard::nn::cuda {
namespace {

class LinearLayer : public UnitLayer {
 public:
  LinearLayer(const LayerContext& context, const Unit& unit)
      : context_(context), bias_(std::get<Linear>(context.node(unit.head()).op).bias) {
    const Node& node = context.node(unit.head());
    weight_id_ = context.parameter(node, 0);
    weight_ = context.weights.add(weight_id_);
    if (!bias_) return;
    bias_id_ = context.parameter(node, 1);
    bias_copy_ = context.weights.add(bias_id_);
  }

  at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom&) override;

  at::Tensor forward(const at::Tensor& x) const {
    return at::linear(x, context_.weights.at(weight_), bias_ ? context_.weights.at(bias_copy_) : at::Tensor());
  }
  variable_list backward(AutogradContext& autograd, const at::Tensor& g) const;

 private:
  const LayerContext& context_;
  const bool bias_;
  ParameterId weight_id_, bias_id_;
  int weight_ = 0, bias_copy_ = 0;  // in context_.weights
};

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& /*anchor*/,
                            LinearLayer* layer) {
    hold(*context, layer);
    context->save_for_backward({x});
    return layer->forward(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return held<LinearLayer*>(*context)->backward(*context, gradients[0]);
  }
};

at::Tensor LinearLayer::run(std::span<const at::Tensor> inputs, const StepRandom&) {
  if (context_.training()) return LinearFunction::apply(inputs[0], context_.anchor, this);
  return forward(inputs[0]);
}

variable_list LinearLayer::backward(AutogradContext& autograd, const at::Tensor& g) const {
  const at::Tensor x = autograd.get_saved_variables()[0];
  if (context_.gradients()) {
    context_.build.gradients->write(weight_id_, g.t().mm(x));
    if (bias_) context_.build.gradients->write(bias_id_, g.sum(at::IntArrayRef{0}, false, at::kFloat));
  }
  const at::Tensor dx = autograd.needs_input_grad(0) ? g.mm(context_.weights.at(weight_)) : at::Tensor();
  return {dx, at::Tensor(), at::Tensor()};
}

}  // namespace

std::unique_ptr<UnitLayer> make_linear_layer(const LayerContext& context, const Unit& unit) {
  return make_layer_of<LinearLayer, Linear>(context, unit);
}

}  // namespace trainyard::nn::cuda
