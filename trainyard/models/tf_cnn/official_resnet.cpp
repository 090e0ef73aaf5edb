// The ResNets of TensorFlow's official models, as tf_cnn_benchmarks' official_resnet*: basic blocks up to 34 layers,
// bottlenecks with the stride in the 3x3 convolution from 50 on; the shortcut of the first block of each stage has a
// convolution. v2 has norm and ReLU in front of convolutions. He, Zhang, Ren, Sun, "Deep residual learning for image
// recognition", 2015 and "Identity mappings in deep residual networks", 2016.

#include <array>

#include <fmt/core.h>

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn::official_resnet {
namespace {

using Value = nn::GraphBuilder::Value;

struct Config {
  std::string name;
  int version = 1;
  bool bottleneck = true;
  std::array<int, 4> blocks;
};

// The convolutions of one block, first to last.
struct Step {
  int64_t channels, kernel, stride;
};
std::vector<Step> steps(const Config& config, int64_t channels, int64_t stride) {
  if (!config.bottleneck) return {{channels, 3, stride}, {channels, 3, 1}};
  return {{channels, 1, 1}, {channels, 3, stride}, {4 * channels, 1, 1}};
}

Value norm_relu(nn::GraphBuilder& b, const std::string& prefix, size_t number, Value x) {
  return b.activation(fmt::format("{}relu{}", prefix, number), b.batch_norm(fmt::format("{}bn{}", prefix, number), x));
}

Value block_v1(nn::GraphBuilder& b, const std::string& prefix, Value x, const std::vector<Step>& block, bool project,
               int64_t stride) {
  Value y = x;
  for (size_t i = 0; i < block.size(); ++i) {
    y = b.convolution(fmt::format("{}conv{}", prefix, i + 1), y,
                      resnet_convolution(block[i].channels, block[i].kernel, block[i].stride));
    if (i + 1 < block.size()) y = norm_relu(b, prefix, i + 1, y);
  }
  y = b.batch_norm(fmt::format("{}bn{}", prefix, block.size()), y);
  Value past = x;
  if (project) {
    past = b.convolution(prefix + "projection", x, resnet_convolution(block.back().channels, 1, stride));
    past = b.batch_norm(prefix + "projection_bn", past);
  }
  return b.activation(prefix + "relu", b.add(prefix + "add", {y, past}));
}

Value block_v2(nn::GraphBuilder& b, const std::string& prefix, Value x, const std::vector<Step>& block, bool project,
               int64_t stride) {
  Value y = x, past = x;
  for (size_t i = 0; i < block.size(); ++i) {
    y = norm_relu(b, prefix, i + 1, y);
    if (i == 0 && project) {
      past = b.convolution(prefix + "projection", y, resnet_convolution(block.back().channels, 1, stride));
    }
    y = b.convolution(fmt::format("{}conv{}", prefix, i + 1), y,
                      resnet_convolution(block[i].channels, block[i].kernel, block[i].stride));
  }
  return b.add(prefix + "add", {y, past});
}

nn::Graph build(const Config& config, const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = config.name, .batch_norm = {.decay = 0.997}});
  Value x = b.convolution("conv1", b.input(), resnet_convolution(64, 7, 2));
  if (config.version == 1) x = b.activation("relu", b.batch_norm("bn1", x));
  x = b.max_pool("maxpool", x, {.kernel = 3, .stride = 2, .padding = nn::Padding::same()});
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < config.blocks[static_cast<size_t>(stage)]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      const std::vector<Step> block = steps(config, int64_t{64} << stage, stride);
      const std::string prefix = fmt::format("layer{}.{}.", stage + 1, i);
      x = config.version == 1 ? block_v1(b, prefix, x, block, i == 0, stride)
                              : block_v2(b, prefix, x, block, i == 0, stride);
    }
  }
  if (config.version == 2) x = b.activation("relu", b.batch_norm("bn_last", x));
  x = b.global_average_pool("avgpool", x);
  // Glorot's uniform start, Keras' default.
  const double bound = std::sqrt(6.0 / static_cast<double>(b.shape(x)[0] + options.num_classes));
  return b.build(
      b.linear("fc", x, {.out_features = options.num_classes, .weight_init = nn::Initializer::uniform(bound)}));
}

ModelInfo official(int layers, int version, const std::array<int, 4>& blocks) {
  const Config config{.name = fmt::format("official_resnet{}{}", layers, version == 2 ? "_v2" : ""),
                      .version = version,
                      .bottleneck = layers >= 50,
                      .blocks = blocks};
  return {.name = config.name,
          .family = DatasetFamily::kImagenet,
          .equals = "tf_cnn_benchmarks " + config.name,
          .default_batch_size = layers == 50 ? 128 : 32,
          .schedule = {.learning_rate = 0.0125,
                       .batch_size = 32,
                       .boundary_epochs = {30, 60, 80, 90},
                       .factors = {1, 0.1, 0.01, 0.001, 0.0001}},
          .build = [config](const ModelOptions& options) { return build(config, options); }};
}

// Both versions of a size.
struct Pair {
  Pair(int layers, const std::array<int, 4>& blocks)
      : first(official(layers, 1, blocks)), second(official(layers, 2, blocks)) {}
  ModelRegistration first, second;
};

const Pair k18(18, {2, 2, 2, 2});
const Pair k34(34, {3, 4, 6, 3});
const Pair k50(50, {3, 4, 6, 3});
const Pair k101(101, {3, 4, 23, 3});
const Pair k152(152, {3, 8, 36, 3});
const Pair k200(200, {3, 24, 36, 3});

}  // namespace
}  // namespace trainyard::models::tf_cnn::official_resnet
