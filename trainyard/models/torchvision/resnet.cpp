// torchvision's ResNets: bottleneck blocks have their stride in the 3x3 convolution (v1.5). He, Zhang, Ren, Sun, "Deep
// residual learning for image recognition", 2015; Xie et al., "Aggregated residual transformations for deep neural
// networks", 2017, for ResNeXt; Zagoruyko, Komodakis, "Wide residual networks", 2016.

#include <array>

#include "trainyard/models/registry/reference_recipe.h"
#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::resnet {
namespace {

struct ResnetConfig {
  std::array<int, 4> blocks;
  bool bottleneck = true;
  int64_t groups = 1;
  int64_t width_per_group = 64;
  int64_t channels_of_zeros = 0;  // behind those of the images
  bool blurs = false;             // the input of each convolution with a stride, but the first one's
};

// Returns x blurred in both directions by (1, 2, 1) / 4, with zeros around it (Zhang, "Making convolutional networks
// shift-invariant again", 2019): the mean of two neighbours twice.
Value blurred(nn::GraphBuilder& b, const std::string& prefix, Value x) {
  const nn::Pool mean{.kind = nn::Pool::Kind::kAverage, .kernel = 2, .stride = 1, .count_padding = true};
  nn::Pool wider = mean;
  wider.padding = nn::Padding::all(1);
  return b.average_pool(prefix + ".mean", b.average_pool(prefix + ".wider", x, wider), mean);
}

Value strided_convolution(nn::GraphBuilder& b, const std::string& name, Value x, const nn::Convolution& op,
                          bool blurs) {
  if (!blurs || op.stride.height == 1) return b.convolution(name, x, op);
  return b.convolution(name + ".conv", blurred(b, name + ".blur", x), op);
}

Value convolution_norm(nn::GraphBuilder& b, const std::string& prefix, int number, Value x, const nn::Convolution& op,
                       bool blurs = false) {
  return b.batch_norm(fmt::format("{}bn{}", prefix, number),
                      strided_convolution(b, fmt::format("{}conv{}", prefix, number), x, op, blurs));
}

// The residual path, parallel to the shortcut.
Value basic_path(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride) {
  x = convolution_norm(b, prefix, 1, x, centred_convolution(channels, 3, stride));
  x = b.activation(prefix + "relu1", x);
  return convolution_norm(b, prefix, 2, x, centred_convolution(channels, 3));
}

Value bottleneck_path(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride,
                      const ResnetConfig& config) {
  const int64_t width = channels * config.width_per_group / 64 * config.groups;
  x = convolution_norm(b, prefix, 1, x, centred_convolution(width, 1));
  x = b.activation(prefix + "relu1", x);
  x = convolution_norm(b, prefix, 2, x, centred_convolution(width, 3, stride, config.groups), config.blurs);
  x = b.activation(prefix + "relu2", x);
  return convolution_norm(b, prefix, 3, x, centred_convolution(4 * channels, 1));
}

Value block(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride,
            const ResnetConfig& config) {
  const int64_t out = config.bottleneck ? 4 * channels : channels;
  const Value y = config.bottleneck ? bottleneck_path(b, prefix, x, channels, stride, config)
                                    : basic_path(b, prefix, x, channels, stride);
  Value past = x;
  if (stride != 1 || b.shape(x)[0] != out) {
    past = b.batch_norm(
        prefix + "downsample.1",
        strided_convolution(b, prefix + "downsample.0", x, centred_convolution(out, 1, stride), config.blurs));
  }
  return b.activation(prefix + "relu", b.add(prefix + "add", {y, past}));
}

nn::Graph build(const ResnetConfig& config, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  Value image = b.input();
  if (config.channels_of_zeros > 0) image = b.channel_pad("pad", image, {.after = config.channels_of_zeros});
  Value x = convolution_norm(b, "", 1, image, centred_convolution(64, 7, 2));
  x = b.max_pool("maxpool", b.activation("relu", x), {.kernel = 3, .stride = 2, .padding = nn::Padding::all(1)});
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < config.blocks[static_cast<size_t>(stage)]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      x = block(b, fmt::format("layer{}.{}.", stage + 1, i), x, int64_t{64} << stage, stride, config);
    }
  }
  return b.build(append_linear(b, "fc", b.global_average_pool("avgpool", x), options.num_classes));
}

ModelInfo resnet(const std::string& name, const ResnetConfig& config) {
  return model(
      name, [config](const ModelOptions& options, const std::string& graph) { return build(config, options, graph); });
}

const ModelRegistration kResnet18(resnet("resnet18", {.blocks = {2, 2, 2, 2}, .bottleneck = false}));
const ModelRegistration kResnet34(resnet("resnet34", {.blocks = {3, 4, 6, 3}, .bottleneck = false}));
const ModelRegistration kResnet50(resnet("resnet50", {.blocks = {3, 4, 6, 3}}));
// That of NVIDIA DALI's PaddlePaddle example, whose images have a fourth channel of zeros.
const ModelRegistration kPaddleResnet50(reference_model(
    "paddle/resnet50", "NVIDIA's PaddlePaddle ResNet50",
    [](const ModelOptions& options, const std::string& graph) {
      return build({.blocks = {3, 4, 6, 3}, .channels_of_zeros = 1}, options, graph);
    },
    kRate, 224));
// That of FFCV's ImageNet example.
const ModelRegistration kFfcvResnet50(reference_model(
    "ffcv/resnet50", "FFCV's ResNet50 with BlurPool",
    [](const ModelOptions& options, const std::string& graph) {
      return build({.blocks = {3, 4, 6, 3}, .blurs = true}, options, graph);
    },
    kRate, 224));
const ModelRegistration kResnet101(resnet("resnet101", {.blocks = {3, 4, 23, 3}}));
const ModelRegistration kResnet152(resnet("resnet152", {.blocks = {3, 8, 36, 3}}));
const ModelRegistration kResnext50(resnet("resnext50_32x4d",
                                          {.blocks = {3, 4, 6, 3}, .groups = 32, .width_per_group = 4}));
const ModelRegistration kWideResnet50(resnet("wide_resnet50_2", {.blocks = {3, 4, 6, 3}, .width_per_group = 128}));

}  // namespace
}  // namespace trainyard::models::torchvision::resnet
