// tf_cnn_benchmarks' DenseNets for CIFAR-10: three blocks, no bottlenecks and no compression; its convolutions have a
// bias, and the ones between blocks a ReLU. Huang, Liu, van der Maaten, Weinberger, "Densely connected convolutional
// networks", 2017. (That of tf_cnn_benchmarks cannot be called, and would keep only twice the growth of channels
// between blocks.)

#include <fmt/core.h>

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn::densenet {
namespace {

using Value = nn::GraphBuilder::Value;

// Norm, ReLU, and a convolution whose start is for `channels` outputs.
Value append(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t kernel) {
  nn::Convolution op = benchmark_convolution(channels, kernel);
  op.bias = true;
  op.weight_init = nn::Initializer::truncated_normal(std::sqrt(2.0 / 9 / static_cast<double>(channels)));
  x = b.activation(prefix + "relu", b.batch_norm(prefix + "bn", x));
  return b.convolution(prefix + "conv", x, op);
}

nn::Graph build(const std::string& name, int layers, int64_t growth, const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  nn::Convolution first = benchmark_convolution(16, 3);
  first.bias = true;
  Value x = b.convolution("conv0", b.input(), first);
  for (int block = 1; block <= 3; ++block) {
    for (int i = 0; i < layers; ++i) {
      const std::string prefix = fmt::format("block{}.{}.", block, i);
      x = b.concat(prefix + "concat", {x, append(b, prefix, x, growth, 3)});
    }
    if (block == 3) break;
    const std::string prefix = fmt::format("transition{}.", block);
    x = b.activation(prefix + "relu2", append(b, prefix, x, b.shape(x)[0], 1));
    x = b.average_pool(prefix + "pool", x, {.kernel = 2, .stride = 2});
  }
  x = b.activation("relu", b.batch_norm("bn", x));
  return b.build(append_linear(b, "fc", b.global_average_pool("avgpool", x), options.num_classes, false));
}

ModelInfo densenet(int depth, int layers, int64_t growth) {
  const std::string name = fmt::format("densenet{}_k{}", depth, growth);
  return {.name = name,
          .family = DatasetFamily::kCifar10,
          .equals = "tf_cnn_benchmarks " + name,
          .image_size = 32,
          .default_batch_size = 64,
          .schedule = {.learning_rate = 0.1, .boundary_epochs = {150, 225, 300}, .factors = {1, 0.1, 0.01, 0.001}},
          .build = [=](const ModelOptions& options) { return build(name, layers, growth, options); }};
}

const ModelRegistration kDensenet40(densenet(40, 12, 12));
const ModelRegistration kDensenet100(densenet(100, 32, 12));
const ModelRegistration kDensenet100Wide(densenet(100, 32, 24));

}  // namespace
}  // namespace trainyard::models::tf_cnn::densenet
