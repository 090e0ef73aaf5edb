// Keras' ResNets: the stride is in the first 1x1 convolution of a block, and convolutions have biases although norms
// follow. He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015.

#include <array>

#include "trainyard/models/keras/layers.h"

namespace trainyard::models::keras::resnet {
namespace {

using Blocks = std::array<int, 4>;

Value convolution_norm(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t kernel,
                       int64_t stride = 1) {
  nn::Convolution op = convolution(b.shape(x)[0], channels, kernel, stride);
  op.bias = true;
  return b.batch_norm(prefix + "_bn", b.convolution(prefix + "_conv", x, op));
}

Value block(nn::GraphBuilder& b, const std::string& name, Value x, int64_t channels, int64_t stride, bool project) {
  const Value past = project ? convolution_norm(b, name + "_0", x, 4 * channels, 1, stride) : x;
  x = b.activation(name + "_1_relu", convolution_norm(b, name + "_1", x, channels, 1, stride));
  x = b.activation(name + "_2_relu", convolution_norm(b, name + "_2", x, channels, 3));
  x = convolution_norm(b, name + "_3", x, 4 * channels, 1);
  return b.activation(name + "_out", b.add(name + "_add", {past, x}));
}

nn::Graph build(const Blocks& blocks, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b = builder(options, name);
  Value x = b.activation("conv1_relu", convolution_norm(b, "conv1", b.input(), 64, 7, 2));
  x = b.max_pool("pool1_pool", x, {.kernel = 3, .stride = 2, .padding = nn::Padding::all(1)});
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < blocks[static_cast<size_t>(stage)]; ++i) {
      x = block(b, fmt::format("conv{}_block{}", stage + 2, i + 1), x, int64_t{64} << stage,
                stage > 0 && i == 0 ? 2 : 1, i == 0);
    }
  }
  return b.build(append_dense(b, "predictions", b.global_average_pool("avg_pool", x), options.num_classes));
}

ModelInfo resnet(const std::string& name, const std::string& application, const Blocks& blocks) {
  return model(name, application, [blocks](const ModelOptions& options, const std::string& graph) {
    return build(blocks, options, graph);
  });
}

const ModelRegistration kResnet50(resnet("resnet50", "ResNet50", {3, 4, 6, 3}));
const ModelRegistration kResnet101(resnet("resnet101", "ResNet101", {3, 4, 23, 3}));
const ModelRegistration kResnet152(resnet("resnet152", "ResNet152", {3, 8, 36, 3}));

}  // namespace
}  // namespace trainyard::models::keras::resnet
