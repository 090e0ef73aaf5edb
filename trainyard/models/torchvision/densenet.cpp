// torchvision's DenseNets (with bottlenecks and compression: DenseNet-BC). Huang, Liu, van der Maaten, Weinberger,
// "Densely connected convolutional networks", 2017.

#include <array>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::densenet {
namespace {

struct DensenetConfig {
  std::array<int, 4> layers;  // in each block
  int64_t growth = 32;
  int64_t stem = 64;
};

nn::Convolution convolution(int64_t out_channels, int64_t kernel, int64_t stride = 1) {
  nn::Convolution op = centred_convolution(out_channels, kernel, stride);
  op.weight_init = nn::Initializer::he_normal(nn::Initializer::Fan::kIn);
  return op;
}

// Norm, ReLU and convolution number `number` of a layer.
Value append(nn::GraphBuilder& b, const std::string& prefix, const std::string& number, Value x,
             const nn::Convolution& op) {
  x = b.activation(prefix + "relu" + number, b.batch_norm(prefix + "norm" + number, x));
  return b.convolution(prefix + "conv" + number, x, op);
}

Value dense_layer(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t growth) {
  const Value y = append(b, prefix, "1", x, convolution(4 * growth, 1));
  return b.concat(prefix + "concat", {x, append(b, prefix, "2", y, convolution(growth, 3))});
}

nn::Graph build(const DensenetConfig& config, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  Value x = b.convolution("features.conv0", b.input(), convolution(config.stem, 7, 2));
  x = b.activation("features.relu0", b.batch_norm("features.norm0", x));
  x = b.max_pool("features.pool0", x, {.kernel = 3, .stride = 2, .padding = nn::Padding::all(1)});
  for (int block = 1; block <= 4; ++block) {
    for (int layer = 1; layer <= config.layers[static_cast<size_t>(block - 1)]; ++layer) {
      x = dense_layer(b, fmt::format("features.denseblock{}.denselayer{}.", block, layer), x, config.growth);
    }
    if (block == 4) break;
    const std::string transition = fmt::format("features.transition{}.", block);
    x = append(b, transition, "", x, convolution(b.shape(x)[0] / 2, 1));
    x = b.average_pool(transition + "pool", x, {.kernel = 2, .stride = 2});
  }
  x = b.activation("features.relu5", b.batch_norm("features.norm5", x));
  return b.build(b.linear("classifier", b.global_average_pool("avgpool", x), {.out_features = options.num_classes}));
}

ModelInfo densenet(const std::string& name, const DensenetConfig& config) {
  return model(
      name, [config](const ModelOptions& options, const std::string& graph) { return build(config, options, graph); });
}

const ModelRegistration kDensenet121(densenet("densenet121", {.layers = {6, 12, 24, 16}}));
const ModelRegistration kDensenet161(densenet("densenet161", {.layers = {6, 12, 36, 24}, .growth = 48, .stem = 96}));
const ModelRegistration kDensenet169(densenet("densenet169", {.layers = {6, 12, 32, 32}}));
const ModelRegistration kDensenet201(densenet("densenet201", {.layers = {6, 12, 48, 32}}));

}  // namespace
}  // namespace trainyard::models::torchvision::densenet
