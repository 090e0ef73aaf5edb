// ResNet-50 v1.5 for ImageNet: bottleneck blocks whose 3x3 convolution has the stride. Nodes are named as torchvision
// names its modules, and the network is the same as there, so its weights fit. (tf_cnn_benchmarks pads the first
// pooling at the bottom right only; the paper's authors, torchvision and Keras pad all sides, and so do we.) He, Zhang,
// Ren, Sun, "Deep residual learning for image recognition", 2015; Goyal et al., "Accurate, large minibatch SGD:
// training ImageNet in 1 hour", 2017, for v1.5 and the learning rate.

#include <array>

#include <fmt/core.h>

#include "trainyard/models/layer_defaults.h"

namespace trainyard::models {
namespace {

using Value = nn::GraphBuilder::Value;

Value convolution_norm(nn::GraphBuilder& b, const std::string& convolution, const std::string& norm, Value x,
                       nn::Convolution op) {
  return b.batch_norm(norm, b.convolution(convolution, x, op));
}

Value bottleneck(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride) {
  const int64_t wide = 4 * channels;
  Value y = convolution_norm(b, prefix + "conv1", prefix + "bn1", x, resnet_convolution(channels, 1));
  y = b.activation(prefix + "relu1", y);
  y = convolution_norm(b, prefix + "conv2", prefix + "bn2", y, resnet_convolution(channels, 3, stride));
  y = b.activation(prefix + "relu2", y);
  y = convolution_norm(b, prefix + "conv3", prefix + "bn3", y, resnet_convolution(wide, 1));
  Value past = x;
  if (b.shape(x)[0] != wide) {
    past =
        convolution_norm(b, prefix + "downsample.0", prefix + "downsample.1", x, resnet_convolution(wide, 1, stride));
  }
  return b.activation(prefix + "relu3", b.add(prefix + "add", {y, past}));
}

nn::Graph build_resnet50_v1_5(const ModelOptions& options) {
  nn::GraphBuilder b({.image = square_image(options), .name = "resnet50_v1.5"});
  Value x = convolution_norm(b, "conv1", "bn1", b.input(), resnet_convolution(64, 7, 2));
  x = b.activation("relu", x);
  x = b.max_pool("maxpool", x, {.kernel = 3, .stride = 2, .padding = nn::Padding::all(1)});
  const std::array<int, 4> blocks{3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < blocks[static_cast<size_t>(stage)]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      x = bottleneck(b, fmt::format("layer{}.{}.", stage + 1, i), x, int64_t{64} << stage, stride);
    }
  }
  return b.build(append_linear(b, "fc", b.global_average_pool("avgpool", x), options.num_classes, false));
}

const ModelRegistration kResnet50({.name = "resnet50_v1.5",
                                   .family = DatasetFamily::kImagenet,
                                   .equals = "torchvision resnet50",
                                   .image_size = 224,
                                   .default_batch_size = 64,
                                   .schedule = {.learning_rate = 0.128,
                                                .batch_size = 256,
                                                .warmup_epochs = 5,
                                                .boundary_epochs = {30, 60, 80, 90},
                                                .factors = {1, 0.1, 0.01, 0.001, 0.0001}},
                                   .build = build_resnet50_v1_5});

}  // namespace
}  // namespace trainyard::models
