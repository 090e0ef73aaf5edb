// torchvision's MNASNet-B1. Tan et al., "MnasNet: platform-aware neural architecture search for mobile", 2019.

#include <array>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::mnasnet {
namespace {

// Convolution and norm at `place` and after of a Sequential, and ReLU after them.
Value append(nn::GraphBuilder& b, const std::string& prefix, int place, Value x, const nn::Convolution& op, bool relu) {
  x = b.convolution(fmt::format("{}.{}", prefix, place), x, op);
  x = b.batch_norm(fmt::format("{}.{}", prefix, place + 1), x);
  return relu ? b.activation(fmt::format("{}.{}", prefix, place + 2), x) : x;
}

struct Stack {
  int64_t channels, kernel, stride, expansion;
  int blocks;
};

Value inverted_residual(nn::GraphBuilder& b, const std::string& prefix, Value x, const Stack& stack, int64_t stride) {
  const int64_t in = b.shape(x)[0], wide = in * stack.expansion;
  Value y = append(b, prefix + ".layers", 0, x, centred_convolution(wide, 1), true);
  y = append(b, prefix + ".layers", 3, y, centred_convolution(wide, stack.kernel, stride, wide), true);
  y = append(b, prefix + ".layers", 6, y, centred_convolution(stack.channels, 1), false);
  return stride == 1 && in == stack.channels ? b.add(prefix + ".add", {y, x}) : y;
}

nn::Graph build(const ModelOptions& options, const std::string& name) {
  constexpr std::array<Stack, 6> kStacks{
      {{24, 3, 2, 3, 3}, {40, 5, 2, 3, 3}, {80, 5, 2, 6, 3}, {96, 3, 1, 6, 2}, {192, 5, 2, 6, 4}, {320, 3, 1, 6, 1}}};
  nn::GraphBuilder b({.image = options.image_shape(), .name = name, .batch_norm = {.decay = 0.9997}});
  Value x = append(b, "layers", 0, b.input(), centred_convolution(32, 3, 2), true);
  x = append(b, "layers", 3, x, centred_convolution(32, 3, 1, 32), true);
  x = append(b, "layers", 6, x, centred_convolution(16, 1), false);
  int place = 8;
  for (const Stack& stack : kStacks) {
    for (int i = 0; i < stack.blocks; ++i) {
      x = inverted_residual(b, fmt::format("layers.{}.{}", place, i), x, stack, i == 0 ? stack.stride : 1);
    }
    ++place;
  }
  x = append(b, "layers", place, x, centred_convolution(1280, 1), true);
  x = b.dropout("classifier.0", b.global_average_pool("avgpool", x), 0.2);
  // kaiming_uniform_ with mode="fan_out" and a gain of 1.
  const double bound = std::sqrt(3.0 / static_cast<double>(options.num_classes));
  return b.build(b.linear("classifier.1", x,
                          {.out_features = options.num_classes, .weight_init = nn::Initializer::uniform(bound)}));
}

const ModelRegistration kMnasnet(model("mnasnet1_0", build));

}  // namespace
}  // namespace trainyard::models::torchvision::mnasnet
