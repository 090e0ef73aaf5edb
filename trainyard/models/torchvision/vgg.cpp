// torchvision's VGG networks A, B, D and E, plain and with batch norm. Simonyan, Zisserman, "Very deep convolutional
// networks for large-scale image recognition", 2014.

#include <algorithm>
#include <array>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::vgg {
namespace {

using Convolutions = std::array<int, 5>;  // in each stage

nn::Graph build(const Convolutions& convolutions, bool norm, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  int place = 0;  // in torchvision's Sequential
  const auto next = [&place] { return fmt::format("features.{}", place++); };
  Value x = b.input();
  for (size_t stage = 0; stage < convolutions.size(); ++stage) {
    for (int i = 0; i < convolutions[stage]; ++i) {
      nn::Convolution op = centred_convolution(std::min<int64_t>(int64_t{64} << stage, 512), 3);
      op.bias = true;
      x = b.convolution(next(), x, op);
      if (norm) x = b.batch_norm(next(), x);
      x = b.activation(next(), x);
    }
    x = b.max_pool(next(), x, {.kernel = 2, .stride = 2});
  }
  x = append_pool_to(b, x, 7);
  for (const int layer : {0, 3}) {
    x = append_normal_linear(b, fmt::format("classifier.{}", layer), x, 4096);
    x = b.activation(fmt::format("classifier.{}", layer + 1), x);
    x = b.dropout(fmt::format("classifier.{}", layer + 2), x);
  }
  return b.build(append_normal_linear(b, "classifier.6", x, options.num_classes));
}

ModelInfo vgg(const std::string& name, const Convolutions& convolutions, bool norm) {
  return model(
      name,
      [=](const ModelOptions& options, const std::string& graph) { return build(convolutions, norm, options, graph); },
      kRateWithoutNorm);
}

constexpr Convolutions kA{1, 1, 2, 2, 2}, kB{2, 2, 2, 2, 2}, kD{2, 2, 3, 3, 3}, kE{2, 2, 4, 4, 4};

const ModelRegistration kVgg11(vgg("vgg11", kA, false));
const ModelRegistration kVgg13(vgg("vgg13", kB, false));
const ModelRegistration kVgg16(vgg("vgg16", kD, false));
const ModelRegistration kVgg19(vgg("vgg19", kE, false));
const ModelRegistration kVgg11Norm(vgg("vgg11_bn", kA, true));
const ModelRegistration kVgg13Norm(vgg("vgg13_bn", kB, true));
const ModelRegistration kVgg16Norm(vgg("vgg16_bn", kD, true));
const ModelRegistration kVgg19Norm(vgg("vgg19_bn", kE, true));

}  // namespace
}  // namespace trainyard::models::torchvision::vgg
