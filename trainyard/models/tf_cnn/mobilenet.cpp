// tf_cnn_benchmarks' MobileNet v2, with one classifier (tf_cnn_benchmarks puts a second one on the first one's 1,001
// outputs). Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: inverted residuals and linear bottlenecks", 2018.

#include <array>

#include <fmt/core.h>

#include "trainyard/models/registry/layer_defaults.h"

namespace trainyard::models::tf_cnn::mobilenet {
namespace {

using Value = nn::GraphBuilder::Value;

const nn::Initializer kStart = nn::Initializer::truncated_normal(0.09);

Value append(nn::GraphBuilder& b, const std::string& name, Value x, nn::Convolution op, bool activate = true) {
  op.weight_init = kStart;
  x = b.batch_norm(name + ".bn", b.convolution(name, x, op));
  return activate ? b.activation(name + ".relu6", x, nn::Activation::Function::kRelu6) : x;
}

Value expanded_conv(nn::GraphBuilder& b, const std::string& name, Value x, int64_t out, int64_t stride,
                    int64_t expansion) {
  const int64_t in = b.shape(x)[0], wide = in * expansion;
  Value y = expansion > 1 ? append(b, name + ".expand", x, benchmark_convolution(wide, 1)) : x;
  nn::Convolution depthwise = benchmark_convolution(wide, 3, stride);
  depthwise.groups = wide;
  y = append(b, name + ".depthwise", y, depthwise);
  y = append(b, name + ".project", y, benchmark_convolution(out, 1), false);
  return stride == 1 && in == out ? b.add(name + ".add", {y, x}) : y;
}

nn::Graph build(const ModelOptions& options) {
  struct Stage {
    int64_t channels, stride;
    int blocks;
  };
  constexpr std::array<Stage, 7> kStages{
      {{16, 1, 1}, {24, 2, 2}, {32, 2, 3}, {64, 2, 4}, {96, 1, 3}, {160, 2, 3}, {320, 1, 1}}};
  nn::GraphBuilder b(
      {.image = options.image_shape(), .name = "mobilenet", .batch_norm = {.epsilon = 1e-3, .decay = 0.997}});
  Value x = append(b, "conv", b.input(), benchmark_convolution(32, 3, 2));
  int number = 0;
  for (const Stage& stage : kStages) {
    for (int i = 0; i < stage.blocks; ++i, ++number) {
      x = expanded_conv(b, fmt::format("expanded_conv{}", number), x, stage.channels, i == 0 ? stage.stride : 1,
                        number == 0 ? 1 : 6);
    }
  }
  x = append(b, "conv_last", x, benchmark_convolution(1280, 1));
  x = b.dropout("dropout", b.global_average_pool("global_pool", x), 0.2);
  return b.build(b.linear("logits", x, {.out_features = options.num_classes, .weight_init = kStart}));
}

const ModelRegistration kMobilenet(
    {.name = "mobilenet", .family = DatasetFamily::kImagenet, .equals = "tf_cnn_benchmarks mobilenet", .build = build});

}  // namespace
}  // namespace trainyard::models::tf_cnn::mobilenet
