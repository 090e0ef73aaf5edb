// Max pooling with a byte of index an element.
#include <array>

#include <ATen/ops/empty.h>

#include "trainyard/core/cuda/libtorch.h"
#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/nn/cuda/held.h"
#include "trainyard/nn/cuda/unit_layer.h"

namespace trainyard::nn::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMostPlaces = 255;  // of a window, as the kernel counts them

struct MaxPoolFunction : torch::autograd::Function<MaxPoolFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, PoolShape shape) {
    const at::Tensor x = channels_innermost(input);
    const auto format = at::MemoryFormat::ChannelsLast;
    const std::array<int64_t, 4> size{shape.batch, shape.channels, shape.out_height, shape.out_width};
    const at::Tensor y = at::empty(size, x.options(), format);
    const at::Tensor index = at::empty(size, x.options().dtype(at::kByte), format);
    shape.element = element_of(x.scalar_type());
    shape.vector = row_shape({x, y}).grid.vector;
    max_pool(shape, x.const_data_ptr(), y.data_ptr(), pointer<uint8_t>(index), core::cuda::current_stream());
    hold(*context, shape);
    context->save_for_backward({index});
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    PoolShape shape = held<PoolShape>(*context);
    const at::Tensor index = context->get_saved_variables()[0], dy = channels_innermost(gradients[0]);
    const at::Tensor dx = at::empty({shape.batch, shape.channels, shape.height, shape.width}, dy.options(),
                                    at::MemoryFormat::ChannelsLast);
    shape.vector = row_shape({dy, dx}).grid.vector;
    max_pool_backward(shape, dy.const_data_ptr(), pointer<uint8_t>(index), dx.data_ptr(), core::cuda::current_stream());
    return {dx, at::Tensor()};
  }
};

class MaxPoolLayer : public UnitLayer {
 public:
  explicit MaxPoolLayer(PoolShape shape) : shape_(shape) {}
  at::Tensor run(std::span<const at::Tensor> inputs, const StepRandom&) override {
    PoolShape shape = shape_;
    shape.batch = static_cast<int>(inputs[0].size(0));
    return MaxPoolFunction::apply(inputs[0], shape);
  }

 private:
  const PoolShape shape_;
};

}  // namespace

std::unique_ptr<UnitLayer> make_max_pool_layer(const LayerContext& context, const Unit& unit) {
  const Node& node = context.node(unit.head());
  const auto* pool = std::get_if<Pool>(&node.op);
  if (pool == nullptr || pool->kind != Pool::Kind::kMax || pool->kernel.height * pool->kernel.width > kMostPlaces) {
    return nullptr;
  }
  const Shape& image = context.node(node.inputs[0]).shape;
  const Padding padding = resolve_padding(pool->padding, {image[1], image[2]}, pool->kernel, pool->stride);
  // What hangs over the lower right edge is left out by the kernel: the output's size says how far windows go.
  return std::make_unique<MaxPoolLayer>(PoolShape{.channels = static_cast<int>(image[0]),
                                                  .height = static_cast<int>(image[1]),
                                                  .width = static_cast<int>(image[2]),
                                                  .out_height = static_cast<int>(node.shape[1]),
                                                  .out_width = static_cast<int>(node.shape[2]),
                                                  .kernel_height = static_cast<int>(pool->kernel.height),
                                                  .kernel_width = static_cast<int>(pool->kernel.width),
                                                  .stride_height = static_cast<int>(pool->stride.height),
                                                  .stride_width = static_cast<int>(pool->stride.width),
                                                  .top = static_cast<int>(padding.top),
                                                  .left = static_cast<int>(padding.left)});
}

}  // namespace trainyard::nn::cuda
