// The common layers of torchvision's networks. Nodes with parameters have the names of torchvision's modules, so a
// state dict of torchvision fits; initial values are drawn from torchvision's distributions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string>

#include <fmt/core.h>

#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::models::torchvision {

using Value = nn::GraphBuilder::Value;
using Function = nn::Activation::Function;

// Returns a convolution that is padded so that a stride of 1 keeps the size, for odd kernels. Its weights are
// initialized by kaiming_normal_ with mode="fan_out".
inline nn::Convolution centred_convolution(int64_t out_channels, nn::Size2d kernel, nn::Size2d stride = 1,
                                           int64_t groups = 1) {
  return {.out_channels = out_channels,
          .kernel = kernel,
          .stride = stride,
          .padding = nn::Padding::symmetric((kernel.height - 1) / 2, (kernel.width - 1) / 2),
          .groups = groups};
}

// Returns the default initializer of biases in torch.nn.Conv2d and Linear.
inline nn::Initializer default_bias(int64_t fan_in) {
  return nn::Initializer::uniform(1 / std::sqrt(static_cast<double>(fan_in)));
}

// Gives a convolution with a bias the default initialization of torch.nn.Conv2d: weights and bias uniform within 1 /
// sqrt(fan in).
inline nn::Convolution with_default_start(nn::Convolution op, int64_t in_channels) {
  op.bias = true;
  op.weight_init = nn::Initializer::he_uniform();
  op.bias_init = default_bias(in_channels / op.groups * op.kernel.height * op.kernel.width);
  return op;
}

// Adds a torch.nn.Linear with its default initialization.
inline Value append_linear(nn::GraphBuilder& b, const std::string& name, Value x, int64_t out_features) {
  return b.linear(name, x, {.out_features = out_features, .bias_init = default_bias(b.shape(x)[0])});
}

// Adds a torch.nn.Linear with normal weights and a zero bias.
inline Value append_normal_linear(nn::GraphBuilder& b, const std::string& name, Value x, int64_t out_features,
                                  double deviation = 0.01) {
  return b.linear(name, x, {.out_features = out_features, .weight_init = nn::Initializer::normal(deviation)});
}

// Adds a torch.nn.Linear at each pixel.
inline Value append_pixel_linear(nn::GraphBuilder& b, const std::string& name, Value x, int64_t out_features,
                                 const nn::Initializer& weight_init, const nn::Initializer& bias_init = {}) {
  return b.convolution(name, x,
                       {.out_channels = out_features,
                        .kernel = 1,
                        .bias = true,
                        .weight_init = weight_init,
                        .bias_init = bias_init,
                        .form = nn::Convolution::Form::kLinear});
}

// Adds torchvision.ops.Conv2dNormActivation: "<prefix>.0", "<prefix>.1" and, if there is one, "<prefix>.2".
inline Value append_conv_norm(nn::GraphBuilder& b, const std::string& prefix, Value x, const nn::Convolution& op,
                              std::optional<Function> activation) {
  x = b.batch_norm(prefix + ".1", b.convolution(prefix + ".0", x, op));
  return activation ? b.activation(prefix + ".2", x, *activation) : x;
}

// Adds BasicConv2d of GoogLeNet and Inception: "<name>.conv", "<name>.bn" and ReLU.
inline Value append_basic_convolution(nn::GraphBuilder& b, const std::string& name, Value x,
                                      const nn::Convolution& op) {
  return b.activation(name + ".relu", b.batch_norm(name + ".bn", b.convolution(name + ".conv", x, op)));
}

// Returns the nearest multiple of 8 that loses no more than a tenth.
inline int64_t divisible_by_8(double channels) {
  const int64_t near = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(near) < 0.9 * channels ? near + 8 : near;
}

// Adds torch.nn.AdaptiveAvgPool2d to size x size, and flattens. Does not pool when the image already has the size, as
// at the models' own image sizes.
inline Value append_pool_to(nn::GraphBuilder& b, Value x, int64_t size) {
  if (b.shape(x)[1] != size || b.shape(x)[2] != size) x = b.adaptive_average_pool("avgpool", x, size);
  return b.flatten("flatten", x);
}

// Adds the stages of ConvNeXts and Swin transformers: append_between(prefix, x, stage) adds what is in front of each
// stage but the first, "features.<2 stage>", append_block(prefix, x, stage, i, drop) the blocks, "features.<2 stage +
// 1>.<i>". `drop`, the probability that a block is left out, rises from 0 to `depth_drop` over all blocks.
template <typename Between, typename Block>
Value append_stages(Value x, const std::array<int, 4>& blocks, double depth_drop, const Between& append_between,
                    const Block& append_block) {
  const int all = std::accumulate(blocks.begin(), blocks.end(), 0);
  int before = 0;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    if (stage > 0) x = append_between(fmt::format("features.{}", 2 * stage), x, stage);
    for (int i = 0; i < blocks[stage]; ++i, ++before) {
      x = append_block(fmt::format("features.{}.{}", 2 * stage + 1, i), x, stage, i, depth_drop * before / (all - 1));
    }
  }
  return x;
}

// Returns the name of torchvision's network here: its own, or "torchvision/<name>" where tf_cnn_benchmarks has a
// network of that name. find_model() takes the prefix for all of them.
std::string name_of(const std::string& name);

// A training recipe of torchvision's references: the rate falls to a tenth each 30 epochs, for a global batch of 256.
inline constexpr double kRate = 0.1;
inline constexpr double kRateWithoutNorm = 0.01;  // without batch norm: AlexNet, VGG, SqueezeNet, transformers

// Returns an ImageNet model of torchvision under name_of(name). `build` gets the options and the graph's name.
ModelInfo model(const std::string& name, std::function<nn::Graph(const ModelOptions&, const std::string&)> build,
                double learning_rate = kRate, int64_t image_size = 224);

}  // namespace trainyard::models::torchvision
