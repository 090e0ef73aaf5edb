// ResNets for images of 32 x 32: three stages of n blocks with 16, 32 and 64 channels; 6n + 2 layers.
// He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015, section 4.2, in tf_cnn_benchmarks' form:
// no ReLU after the first convolution, padding as TensorFlow's (a pixel at the lower right alone where the stride is
// 2), and shortcuts without parameters ("option A"): where a stage halves the image, every second pixel, with half of
// the new channels' zeros before the old channels and half after. The v2 ones have norm and ReLU in front of each block
// (He, Zhang, Ren, Sun, "Identity mappings in deep residual networks", 2016; those norms have the builder's defaults
// there, no scale and slow averages) and a ReLU after the first convolution.

#include <fmt/core.h>

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn::resnet_cifar {
namespace {

using Value = nn::GraphBuilder::Value;

Value convolution_norm(nn::GraphBuilder& b, const std::string& prefix, int number, Value x, nn::Convolution op) {
  x = b.convolution(fmt::format("{}conv{}", prefix, number), x, op);
  return b.batch_norm(fmt::format("{}bn{}", prefix, number), x);
}

Value shortcut(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride) {
  const int64_t missing = channels - b.shape(x)[0];
  if (missing == 0) return x;
  x = b.average_pool(prefix + "shortcut.pool", x, {.kernel = 1, .stride = stride});
  return b.channel_pad(prefix + "shortcut.pad", x, {missing / 2, missing - missing / 2});
}

Value block(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride) {
  const Value past = shortcut(b, prefix, x, channels, stride);
  Value y = convolution_norm(b, prefix, 1, x, benchmark_convolution(channels, 3, stride));
  y = b.activation(prefix + "relu1", y);
  y = convolution_norm(b, prefix, 2, y, benchmark_convolution(channels, 3));
  return b.activation(prefix + "relu2", b.add(prefix + "add", {y, past}));
}

Value preactivated_block(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride) {
  const Value past = shortcut(b, prefix, x, channels, stride);
  Value y = b.activation(prefix + "relu0", b.batch_norm(prefix + "bn0", x, benchmark_norm()));
  y = b.activation(prefix + "relu1", convolution_norm(b, prefix, 1, y, benchmark_convolution(channels, 3, stride)));
  return b.add(prefix + "add", {b.convolution(prefix + "conv2", y, benchmark_convolution(channels, 3)), past});
}

nn::Graph build_resnet(const std::string& name, int blocks, bool preactivated, const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  Value x = convolution_norm(b, "", 1, b.input(), benchmark_convolution(16, 3));
  if (preactivated) x = b.activation("relu1", x);
  int64_t channels = 16;
  for (int stage = 1; stage <= 3; ++stage, channels *= 2) {
    for (int i = 0; i < blocks; ++i) {
      const int64_t stride = stage > 1 && i == 0 ? 2 : 1;
      const std::string prefix = fmt::format("layer{}.{}.", stage, i);
      x = preactivated ? preactivated_block(b, prefix, x, channels, stride) : block(b, prefix, x, channels, stride);
    }
  }
  if (preactivated) x = b.activation("relu_last", b.batch_norm("bn_last", x, benchmark_norm()));
  return b.build(append_linear(b, "fc", b.global_average_pool("avgpool", x), options.num_classes, false));
}

ModelInfo resnet(int layers, bool preactivated = false) {
  const std::string name = fmt::format("resnet{}{}", layers, preactivated ? "_v2" : "");
  return {.name = name,
          .family = DatasetFamily::kCifar10,
          .equals = "tf_cnn_benchmarks " + name,
          .image_size = 32,
          .default_batch_size = 128,
          .schedule = {.learning_rate = 0.1, .boundary_epochs = {82, 123, 300}, .factors = {1, 0.1, 0.01, 0.002}},
          .build = [=](const ModelOptions& options) {
            return build_resnet(name, (layers - 2) / 6, preactivated, options);
          }};
}

const ModelRegistration kResnet20(resnet(20));
const ModelRegistration kResnet32(resnet(32));
const ModelRegistration kResnet44(resnet(44));
const ModelRegistration kResnet56(resnet(56));
const ModelRegistration kResnet110(resnet(110));
const ModelRegistration kResnet20Second(resnet(20, true));
const ModelRegistration kResnet32Second(resnet(32, true));
const ModelRegistration kResnet44Second(resnet(44, true));
const ModelRegistration kResnet56Second(resnet(56, true));
const ModelRegistration kResnet110Second(resnet(110, true));

}  // namespace
}  // namespace trainyard::models::tf_cnn::resnet_cifar
