// The networks of NVIDIA DALI's TensorFlow ResNet-N example, resnet_model.py: ResNet-50 in Keras' layers, with the
// stride in the 3x3 convolutions (v1.5) and no biases of convolutions, and its beginning alone, "trivial". Nodes that
// own parameters have the names of its layers, and start as those do.

#include <array>
#include <string>

#include <fmt/core.h>

#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::models::dali::resnet {
namespace {

using Value = nn::GraphBuilder::Value;

// Keras' he_normal.
const nn::Initializer kHeNormal = nn::Initializer::variance_scaling(2, nn::Initializer::Fan::kIn);

Value convolution_norm(nn::GraphBuilder& b, const std::string& convolution, const std::string& norm, Value x,
                       int64_t channels, int64_t kernel, int64_t stride) {
  x = b.convolution(convolution, x,
                    {.out_channels = channels,
                     .kernel = kernel,
                     .stride = stride,
                     .padding = nn::Padding::same(),
                     .weight_init = kHeNormal});
  return b.batch_norm(norm, x);
}

// `place`: "2a", stage and block.
Value bottleneck(nn::GraphBuilder& b, const std::string& place, Value x, int64_t channels, int64_t stride,
                 bool projects) {
  const auto branch = [&](const std::string& name, Value from, int64_t out, int64_t kernel, int64_t step) {
    return convolution_norm(b, fmt::format("res{}_branch{}", place, name), fmt::format("bn{}_branch{}", place, name),
                            from, out, kernel, step);
  };
  const auto relu = [&](const std::string& name, Value from) {
    return b.activation(fmt::format("res{}_relu{}", place, name), from);
  };
  Value y = relu("2a", branch("2a", x, channels, 1, 1));
  y = relu("2b", branch("2b", y, channels, 3, stride));
  y = branch("2c", y, 4 * channels, 1, 1);
  if (projects) x = branch("1", x, 4 * channels, 1, stride);
  return b.activation(fmt::format("res{}_relu", place), b.add("res" + place, {y, x}));
}

Value begin(nn::GraphBuilder& b) {
  const Value x = b.convolution(
      "conv1", b.input(),
      {.out_channels = 64, .kernel = 7, .stride = 2, .padding = nn::Padding::all(3), .weight_init = kHeNormal});
  return b.batch_norm("bn_conv1", x);
}

nn::Graph end(nn::GraphBuilder& b, Value x, const ModelOptions& options) {
  return b.build(b.linear("fc1000", b.global_average_pool("reduce_mean", x),
                          {.out_features = options.num_classes, .weight_init = nn::Initializer::normal(0.01)}));
}

nn::GraphBuilder builder(const ModelOptions& options, const std::string& name) {
  return nn::GraphBuilder(
      {.image = options.image_shape(), .name = name, .batch_norm = {.epsilon = 1e-5, .decay = 0.9}});
}

nn::Graph build_resnet50(const ModelOptions& options) {
  nn::GraphBuilder b = builder(options, "dali/resnet50");
  Value x = b.activation("relu_conv1", begin(b));
  x = b.max_pool("max_pooling", x, {.kernel = 3, .stride = 2, .padding = nn::Padding::same()});
  constexpr std::array kBlocks{3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    for (int block = 0; block < kBlocks[static_cast<size_t>(stage)]; ++block) {
      x = bottleneck(b, fmt::format("{}{}", stage + 2, static_cast<char>('a' + block)), x, int64_t{64} << stage,
                     stage > 0 && block == 0 ? 2 : 1, block == 0);
    }
  }
  return end(b, x, options);
}

nn::Graph build_trivial(const ModelOptions& options) {
  nn::GraphBuilder b = builder(options, "dali/trivial");
  return end(b, begin(b), options);
}

ModelInfo model(const std::string& name, nn::Graph (*build)(const ModelOptions&)) {
  return {.name = "dali/" + name,
          .family = DatasetFamily::kImagenet,
          .equals = fmt::format("DALI ResNet-N {}", name),
          .default_batch_size = 64,
          .schedule = {.learning_rate = 0.1,
                       .batch_size = 256,
                       .warmup_epochs = 5,
                       .boundary_epochs = {30, 60, 80},
                       .factors = {1, 0.1, 0.01, 0.001}},
          .build = build};
}

const ModelRegistration kResnet50(model("resnet50", build_resnet50));
const ModelRegistration kTrivial(model("trivial", build_trivial));

}  // namespace
}  // namespace trainyard::models::dali::resnet
