// Keras' VGG networks D and E, without dropout. Simonyan, Zisserman, "Very deep convolutional networks for large-scale
// image recognition", 2014.

#include <algorithm>
#include <array>

#include "trainyard/models/keras/layers.h"

namespace trainyard::models::keras::vgg {
namespace {

using Convolutions = std::array<int, 5>;  // in each block

nn::Graph build(const Convolutions& convolutions, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b = builder(options, name);
  Value x = b.input();
  for (int block = 1; block <= 5; ++block) {
    for (int i = 1; i <= convolutions[static_cast<size_t>(block - 1)]; ++i) {
      const std::string layer = fmt::format("block{}_conv{}", block, i);
      nn::Convolution op = convolution(b.shape(x)[0], std::min<int64_t>(int64_t{32} << block, 512), 3);
      op.bias = true;
      x = b.activation(layer + "_relu", b.convolution(layer, x, op));
    }
    x = b.max_pool(fmt::format("block{}_pool", block), x, {.kernel = 2, .stride = 2});
  }
  x = b.flatten("flatten", x);
  for (const char* layer : {"fc1", "fc2"}) {
    x = b.activation(fmt::format("{}_relu", layer), append_dense(b, layer, x, 4096));
  }
  return b.build(append_dense(b, "predictions", x, options.num_classes));
}

ModelInfo vgg(const std::string& name, const std::string& application, const Convolutions& convolutions) {
  constexpr double kRateWithoutNorm = 0.01;
  return model(
      name, application,
      [convolutions](const ModelOptions& options, const std::string& graph) {
        return build(convolutions, options, graph);
      },
      224, kRateWithoutNorm);
}

const ModelRegistration kVgg16(vgg("vgg16", "VGG16", {2, 2, 3, 3, 3}));
const ModelRegistration kVgg19(vgg("vgg19", "VGG19", {2, 2, 4, 4, 4}));

}  // namespace
}  // namespace trainyard::models::keras::vgg
