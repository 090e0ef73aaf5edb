// torchvision's EfficientNets. Tan, Le, "EfficientNet: rethinking model scaling for convolutional neural networks",
// 2019; the same, "EfficientNetV2: smaller models and faster training", 2021.

#include <algorithm>
#include <numeric>
#include <vector>

#include "trainyard/models/torchvision/squeeze_excitation.h"

namespace trainyard::models::torchvision::efficientnet {
namespace {

struct Stage {
  bool fused;  // one k x k convolution in place of 1x1 and depthwise, and no squeeze-and-excitation
  int64_t expansion, kernel, stride, in, channels;
  int blocks;
};

struct EfficientnetConfig {
  std::vector<Stage> stages;
  double dropout = 0.2, epsilon = 1e-5;
  int64_t last = 0;  // channels before the classifier
};

constexpr double kDepthDrop = 0.2;  // of one block more than there are; those rise to it

Value plain_path(nn::GraphBuilder& b, const std::string& prefix, Value x, const Stage& stage, int64_t stride) {
  const int64_t in = b.shape(x)[0], wide = in * stage.expansion;
  int place = 0;
  const auto next = [&] { return fmt::format("{}.block.{}", prefix, place++); };
  if (wide != in) x = append_conv_norm(b, next(), x, centred_convolution(wide, 1), Function::kSilu);
  x = append_conv_norm(b, next(), x, centred_convolution(wide, stage.kernel, stride, wide), Function::kSilu);
  x = append(b, next(), x, {.squeezed = std::max<int64_t>(in / 4, 1), .inner = Function::kSilu});
  return append_conv_norm(b, next(), x, centred_convolution(stage.channels, 1), std::nullopt);
}

Value fused_path(nn::GraphBuilder& b, const std::string& prefix, Value x, const Stage& stage, int64_t stride) {
  const int64_t in = b.shape(x)[0], wide = in * stage.expansion;
  const int64_t first = wide != in ? wide : stage.channels;
  x = append_conv_norm(b, prefix + ".block.0", x, centred_convolution(first, stage.kernel, stride), Function::kSilu);
  if (wide == in) return x;
  return append_conv_norm(b, prefix + ".block.1", x, centred_convolution(stage.channels, 1), std::nullopt);
}

Value append_block(nn::GraphBuilder& b, const std::string& prefix, Value x, const Stage& stage, int64_t stride,
                   double drop) {
  Value y = stage.fused ? fused_path(b, prefix, x, stage, stride) : plain_path(b, prefix, x, stage, stride);
  if (stride != 1 || b.shape(x)[0] != stage.channels) return y;
  return b.add(prefix + ".add", {b.stochastic_depth(prefix + ".stochastic_depth", y, drop), x});
}

nn::Graph build(const EfficientnetConfig& config, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name, .batch_norm = {.epsilon = config.epsilon}});
  Value x =
      append_conv_norm(b, "features.0", b.input(), centred_convolution(config.stages[0].in, 3, 2), Function::kSilu);
  const int blocks = std::accumulate(config.stages.begin(), config.stages.end(), 0,
                                     [](int sum, const Stage& stage) { return sum + stage.blocks; });
  const double drop = options.stochastic_depth.value_or(kDepthDrop);
  int before = 0, place = 1;
  for (const Stage& stage : config.stages) {
    for (int i = 0; i < stage.blocks; ++i, ++before) {
      x = append_block(b, fmt::format("features.{}.{}", place, i), x, stage, i == 0 ? stage.stride : 1,
                       drop * before / blocks);
    }
    ++place;
  }
  x = append_conv_norm(b, fmt::format("features.{}", place), x, centred_convolution(config.last, 1), Function::kSilu);
  x = b.dropout("classifier.0", b.global_average_pool("avgpool", x), config.dropout);
  const double bound = 1 / std::sqrt(static_cast<double>(options.num_classes));
  return b.build(b.linear("classifier.1", x,
                          {.out_features = options.num_classes, .weight_init = nn::Initializer::uniform(bound)}));
}

ModelInfo efficientnet(const std::string& name, int64_t image_size, const EfficientnetConfig& config) {
  return model(
      name, [config](const ModelOptions& options, const std::string& graph) { return build(config, options, graph); },
      kRate, image_size);
}

// B0 with its widths and depths scaled.
ModelInfo scaled(const std::string& name, int64_t image_size, double width, double depth, double dropout) {
  EfficientnetConfig config{.stages = {{false, 1, 3, 1, 32, 16, 1},
                                       {false, 6, 3, 2, 16, 24, 2},
                                       {false, 6, 5, 2, 24, 40, 2},
                                       {false, 6, 3, 2, 40, 80, 3},
                                       {false, 6, 5, 1, 80, 112, 3},
                                       {false, 6, 5, 2, 112, 192, 4},
                                       {false, 6, 3, 1, 192, 320, 1}},
                            .dropout = dropout};
  for (Stage& stage : config.stages) {
    stage.in = divisible_by_8(static_cast<double>(stage.in) * width);
    stage.channels = divisible_by_8(static_cast<double>(stage.channels) * width);
    stage.blocks = static_cast<int>(std::ceil(stage.blocks * depth));
  }
  config.last = 4 * config.stages.back().channels;
  return efficientnet(name, image_size, config);
}

const ModelRegistration kB0(scaled("efficientnet_b0", 224, 1.0, 1.0, 0.2));
const ModelRegistration kB1(scaled("efficientnet_b1", 240, 1.0, 1.1, 0.2));
const ModelRegistration kB2(scaled("efficientnet_b2", 288, 1.1, 1.2, 0.3));
const ModelRegistration kB3(scaled("efficientnet_b3", 300, 1.2, 1.4, 0.3));
const ModelRegistration kB4(scaled("efficientnet_b4", 380, 1.4, 1.8, 0.4));
const ModelRegistration kV2Small(efficientnet("efficientnet_v2_s", 384,
                                              {.stages = {{true, 1, 3, 1, 24, 24, 2},
                                                          {true, 4, 3, 2, 24, 48, 4},
                                                          {true, 4, 3, 2, 48, 64, 4},
                                                          {false, 4, 3, 2, 64, 128, 6},
                                                          {false, 6, 3, 1, 128, 160, 9},
                                                          {false, 6, 3, 2, 160, 256, 15}},
                                               .epsilon = 1e-3,
                                               .last = 1280}));

}  // namespace
}  // namespace trainyard::models::torchvision::efficientnet
