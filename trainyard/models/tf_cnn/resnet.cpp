// tf_cnn_benchmarks' ResNets for ImageNet: bottleneck blocks with the stride in the first 1x1 convolution (v1), in the
// 3x3 one (v1.5), or in the first after a norm and ReLU in front of the block (v2; those norms have the builder's
// defaults there, no scale and slow averages). He, Zhang, Ren, Sun, "Deep residual learning for image recognition",
// 2015 and "Identity mappings in deep residual networks", 2016; Goyal et al., "Accurate, large minibatch SGD: training
// ImageNet in 1 hour", 2017, for v1.5 and the learning rate.
//
// Nodes are named as torchvision names its modules; resnet50_v1.5 is torchvision's network, too, so its weights fit.
// (tf_cnn_benchmarks pads the first pooling at the bottom right only; the paper's authors, torchvision and Keras pad
// all sides, and so does resnet50_v1.5.)

#include <array>

#include <fmt/core.h>

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn::resnet {
namespace {

using Value = nn::GraphBuilder::Value;

enum class Version { kV1, kV15, kV2 };  // kV15: v1.5

struct ResnetConfig {
  std::string name;
  Version version = Version::kV1;
  std::array<int, 4> blocks;
};

Value convolution_norm(nn::GraphBuilder& b, const std::string& convolution, const std::string& norm, Value x,
                       nn::Convolution op) {
  return b.batch_norm(norm, b.convolution(convolution, x, op));
}

Value bottleneck(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride,
                 Version version) {
  const int64_t wide = 4 * channels, first_stride = version == Version::kV15 ? 1 : stride;
  Value y = convolution_norm(b, prefix + "conv1", prefix + "bn1", x, resnet_convolution(channels, 1, first_stride));
  y = b.activation(prefix + "relu1", y);
  y = convolution_norm(b, prefix + "conv2", prefix + "bn2", y, resnet_convolution(channels, 3, stride / first_stride));
  y = b.activation(prefix + "relu2", y);
  y = convolution_norm(b, prefix + "conv3", prefix + "bn3", y, resnet_convolution(wide, 1));
  Value past = x;
  if (b.shape(x)[0] != wide) {
    past =
        convolution_norm(b, prefix + "downsample.0", prefix + "downsample.1", x, resnet_convolution(wide, 1, stride));
  }
  return b.activation(prefix + "relu3", b.add(prefix + "add", {y, past}));
}

Value preactivated_bottleneck(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels,
                              int64_t stride) {
  const int64_t wide = 4 * channels;
  const Value active = b.activation(prefix + "relu0", b.batch_norm(prefix + "bn0", x, benchmark_norm()));
  Value y = convolution_norm(b, prefix + "conv1", prefix + "bn1", active, resnet_convolution(channels, 1, stride));
  y = b.activation(prefix + "relu1", y);
  y = convolution_norm(b, prefix + "conv2", prefix + "bn2", y, resnet_convolution(channels, 3));
  y = b.convolution(prefix + "conv3", b.activation(prefix + "relu2", y), resnet_convolution(wide, 1));
  Value past = x;
  if (b.shape(x)[0] != wide) past = b.convolution(prefix + "downsample", active, resnet_convolution(wide, 1, stride));
  return b.add(prefix + "add", {y, past});
}

nn::Graph build_resnet(const ResnetConfig& config, const ModelOptions& options) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = config.name});
  Value x = convolution_norm(b, "conv1", "bn1", b.input(), resnet_convolution(64, 7, 2));
  x = b.activation("relu", x);
  const nn::Padding padding = config.version == Version::kV15 ? nn::Padding::all(1) : nn::Padding::same();
  x = b.max_pool("maxpool", x, {.kernel = 3, .stride = 2, .padding = padding});
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < config.blocks[static_cast<size_t>(stage)]; ++i) {
      const int64_t channels = int64_t{64} << stage, stride = stage > 0 && i == 0 ? 2 : 1;
      const std::string prefix = fmt::format("layer{}.{}.", stage + 1, i);
      x = config.version == Version::kV2 ? preactivated_bottleneck(b, prefix, x, channels, stride)
                                         : bottleneck(b, prefix, x, channels, stride, config.version);
    }
  }
  if (config.version == Version::kV2) x = b.activation("relu_last", b.batch_norm("bn_last", x, benchmark_norm()));
  return b.build(append_linear(b, "fc", b.global_average_pool("avgpool", x), options.num_classes, false));
}

ModelInfo resnet(const ResnetConfig& config, int64_t batch_size) {
  return {.name = config.name,
          .family = DatasetFamily::kImagenet,
          .equals = config.version == Version::kV15 ? "torchvision resnet50" : "tf_cnn_benchmarks " + config.name,
          .image_size = 224,
          .default_batch_size = batch_size,
          .schedule = {.learning_rate = 0.128,
                       .batch_size = 256,
                       .warmup_epochs = 5,
                       .boundary_epochs = {30, 60, 80, 90},
                       .factors = {1, 0.1, 0.01, 0.001, 0.0001},
                       .takes_resnet_base_lr = true},
          .build = [config](const ModelOptions& options) { return build_resnet(config, options); }};
}

const ModelRegistration kResnet50(resnet({"resnet50", Version::kV1, {3, 4, 6, 3}}, 64));
const ModelRegistration kResnet50Later(resnet({"resnet50_v1.5", Version::kV15, {3, 4, 6, 3}}, 64));
const ModelRegistration kResnet50Second(resnet({"resnet50_v2", Version::kV2, {3, 4, 6, 3}}, 64));
const ModelRegistration kResnet101(resnet({"resnet101", Version::kV1, {3, 4, 23, 3}}, 32));
const ModelRegistration kResnet101Second(resnet({"resnet101_v2", Version::kV2, {3, 4, 23, 3}}, 32));
const ModelRegistration kResnet152(resnet({"resnet152", Version::kV1, {3, 8, 36, 3}}, 32));
const ModelRegistration kResnet152Second(resnet({"resnet152_v2", Version::kV2, {3, 8, 36, 3}}, 32));

}  // namespace
}  // namespace trainyard::models::tf_cnn::resnet
