// Keras' DenseNets (with bottlenecks and compression: DenseNet-BC). Huang, Liu, van der Maaten, Weinberger, "Densely
// connected convolutional networks", 2017.

#include <array>

#include "trainyard/models/keras/layers.h"

namespace trainyard::models::keras::densenet {
namespace {

using Layers = std::array<int, 4>;  // in each block

constexpr int64_t kGrowth = 32;

// "<prefix>_bn" and "<prefix>_relu".
Value norm_relu(nn::GraphBuilder& b, const std::string& prefix, Value x) {
  return b.activation(prefix + "_relu", b.batch_norm(prefix + "_bn", x));
}

Value append(nn::GraphBuilder& b, const std::string& name, Value x, int64_t channels, int64_t kernel,
             int64_t stride = 1) {
  return b.convolution(name, x, convolution(b.shape(x)[0], channels, kernel, stride));
}

Value dense_layer(nn::GraphBuilder& b, const std::string& name, Value x) {
  Value y = append(b, name + "_1_conv", norm_relu(b, name + "_0", x), 4 * kGrowth, 1);
  y = append(b, name + "_2_conv", norm_relu(b, name + "_1", y), kGrowth, 3);
  return b.concat(name + "_concat", {x, y});
}

nn::Graph build(const Layers& layers, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b = builder(options, name);
  Value x = norm_relu(b, "conv1", append(b, "conv1_conv", b.input(), 64, 7, 2));
  x = b.max_pool("pool1", x, {.kernel = 3, .stride = 2, .padding = nn::Padding::all(1)});
  for (int block = 0; block < 4; ++block) {
    if (block > 0) {
      const std::string transition = fmt::format("pool{}", block + 1);
      x = append(b, transition + "_conv", norm_relu(b, transition, x), b.shape(x)[0] / 2, 1);
      x = b.average_pool(transition + "_pool", x, {.kernel = 2, .stride = 2});
    }
    for (int i = 0; i < layers[static_cast<size_t>(block)]; ++i) {
      x = dense_layer(b, fmt::format("conv{}_block{}", block + 2, i + 1), x);
    }
  }
  x = b.activation("relu", b.batch_norm("bn", x));
  return b.build(append_dense(b, "predictions", b.global_average_pool("avg_pool", x), options.num_classes));
}

ModelInfo densenet(const std::string& name, const std::string& application, const Layers& layers) {
  return model(name, application, [layers](const ModelOptions& options, const std::string& graph) {
    return build(layers, options, graph);
  });
}

const ModelRegistration kDensenet121(densenet("densenet121", "DenseNet121", {6, 12, 24, 16}));
const ModelRegistration kDensenet169(densenet("densenet169", "DenseNet169", {6, 12, 32, 32}));
const ModelRegistration kDensenet201(densenet("densenet201", "DenseNet201", {6, 12, 48, 32}));

}  // namespace
}  // namespace trainyard::models::keras::densenet
