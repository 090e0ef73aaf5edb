// torchvision's ConvNeXts. Liu et al., "A ConvNet for the 2020s", 2022.

#include <array>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::convnext {
namespace {

struct ConvnextConfig {
  std::array<int, 4> blocks;
  std::array<int64_t, 4> channels;
  double depth_drop;  // of the last block; the others' rise to it
};

// What torchvision starts all convolutions and linear layers with. Its normal distribution is cut at 100 deviations.
const nn::Initializer kStart = nn::Initializer::normal(0.02);

Value append_norm(nn::GraphBuilder& b, const std::string& name, Value x) {
  return b.layer_norm(name, x, {.epsilon = 1e-6});
}

nn::Convolution with_start(nn::Convolution op) {
  op.bias = true;
  op.weight_init = kStart;
  return op;
}

Value append_block(nn::GraphBuilder& b, const std::string& prefix, Value x, double drop) {
  const int64_t channels = b.shape(x)[0];
  Value y = b.convolution(prefix + ".block.0", x, with_start(centred_convolution(channels, 7, 1, channels)));
  y = append_norm(b, prefix + ".block.2", y);
  y = append_pixel_linear(b, prefix + ".block.3", y, 4 * channels, kStart);
  y = b.activation(prefix + ".block.4", y, Function::kGelu);
  y = append_pixel_linear(b, prefix + ".block.5", y, channels, kStart);
  y = b.layer_scale(prefix + ".layer_scale", y, {});
  return b.add(prefix + ".add", {b.stochastic_depth(prefix + ".stochastic_depth", y, drop), x});
}

nn::Graph build(const ConvnextConfig& config, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  const auto halve = [](int64_t channels, int64_t size) {
    return with_start({.out_channels = channels, .kernel = size, .stride = size});
  };
  Value x = b.convolution("features.0.0", b.input(), halve(config.channels[0], 4));
  x = append_norm(b, "features.0.1", x);
  x = append_stages(
      x, config.blocks, options.stochastic_depth.value_or(config.depth_drop),
      [&](const std::string& prefix, Value y, size_t stage) {
        y = append_norm(b, prefix + ".0", y);
        return b.convolution(prefix + ".1", y, halve(config.channels[stage], 2));
      },
      [&](const std::string& prefix, Value y, size_t /*stage*/, int /*i*/, double drop) {
        return append_block(b, prefix, y, drop);
      });
  x = append_norm(b, "classifier.0", b.global_average_pool("avgpool", x));
  return b.build(append_normal_linear(b, "classifier.2", x, options.num_classes, kStart.value));
}

ModelInfo convnext(const std::string& name, const ConvnextConfig& config) {
  return model(
      name, [config](const ModelOptions& options, const std::string& graph) { return build(config, options, graph); },
      kRateWithoutNorm);
}

const ModelRegistration kTiny(convnext("convnext_tiny", {{3, 3, 9, 3}, {96, 192, 384, 768}, 0.1}));
const ModelRegistration kSmall(convnext("convnext_small", {{3, 3, 27, 3}, {96, 192, 384, 768}, 0.4}));
const ModelRegistration kBase(convnext("convnext_base", {{3, 3, 27, 3}, {128, 256, 512, 1024}, 0.5}));

}  // namespace
}  // namespace trainyard::models::torchvision::convnext
