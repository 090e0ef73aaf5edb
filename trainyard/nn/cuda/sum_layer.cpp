// A sum of two maps with the ReLU behind it.
#include <ATen/ops/empty_like.h>

#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/nn/cuda/held.h"
#include "trainyard/nn/cuda/unit_layer.h"

namespace trainyard::nn::cuda {
namespace {

struct SumFunction : torch::autograd::Function<SumFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& left, const at::Tensor& right,
                            Nonlinearity nonlinearity) {
    hold(*context, nonlinearity);
    const at::Tensor x = channels_innermost(left), residual = channels_innermost(right), y = at::empty_like(x);
    scale_shift_activate(row_shape({x, residual, y}), x.const_data_ptr(), residual.const_data_ptr(), {}, nonlinearity,
                         y.data_ptr(), core::cuda::current_stream());
    context->save_for_backward({y});
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor y = context->get_saved_variables()[0];
    const at::Tensor dy = channels_innermost(gradients[0]), g = at::empty_like(dy);
    gradient_moments(
        row_shape({dy, y, g}),
        {.output_gradient = dy.const_data_ptr(), .y = y.const_data_ptr(), .nonlinearity = held<Nonlinearity>(*context)},
        g.data_ptr(), nullptr, core::cuda::current_stream());
    return {g, g, at::Tensor()};
  }
};

class SumLayer : public UnitLayer {
 public:
  explicit SumLayer(Nonlinearity nonlinearity) : nonlinearity_(nonlinearity) {}
  at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom&) override {
    return SumFunction::apply(inputs[0], inputs[1], nonlinearity_);
  }

 private:
  const Nonlinearity nonlinearity_;
};

}  // namespace

std::unique_ptr<UnitLayer> make_sum_layer(const LayerContext& context, const Unit& unit) {
  const Node& node = context.node(unit.head());
  // The fusion of a sum takes its ReLU, nothing else, so the gradient needs the output alone.
  if (!std::holds_alternative<Add>(node.op) || node.inputs.size() != 2 || unit.activation < 0) return nullptr;
  return std::make_unique<SumLayer>(nonlinearity_of(context, unit));
}

}  // namespace trainyard::nn::cuda
