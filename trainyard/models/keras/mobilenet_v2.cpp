// Keras' MobileNet v2 of width 1. Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: inverted residuals and linear
// bottlenecks", 2018.

#include <array>

#include "trainyard/models/keras/layers.h"

namespace trainyard::models::keras::mobilenet_v2 {
namespace {

// A convolution, "<name>", with a norm and, if `active`, a ReLU6.
Value append(nn::GraphBuilder& b, const std::string& name, const std::string& norm, Value x, nn::Convolution op,
             const std::string& active) {
  op.padding = nn::Padding::same();
  x = b.batch_norm(norm, b.convolution(name, x, op));
  return active.empty() ? x : b.activation(active, x, nn::Activation::Function::kRelu6);
}

Value inverted_residual(nn::GraphBuilder& b, int number, Value x, int64_t out, int64_t stride) {
  const int64_t in = b.shape(x)[0];
  const std::string prefix = number == 0 ? "expanded_conv_" : fmt::format("block_{}_", number);
  const auto layer = [&](const std::string& name, Value y, const nn::Convolution& op, bool active) {
    return append(b, prefix + name, prefix + name + "_BN", y, op, active ? prefix + name + "_relu" : "");
  };
  Value y = number == 0 ? x : layer("expand", x, convolution(in, 6 * in, 1), true);
  const int64_t wide = b.shape(y)[0];
  nn::Convolution depthwise = convolution(wide, 1, 3, stride);
  depthwise.out_channels = depthwise.groups = wide;
  y = layer("depthwise", y, depthwise, true);
  y = layer("project", y, convolution(wide, out, 1), false);
  return stride == 1 && in == out ? b.add(prefix + "add", {x, y}) : y;
}

nn::Graph build(const ModelOptions& options, const std::string& name) {
  struct Stage {
    int64_t channels, stride;
    int blocks;
  };
  constexpr std::array<Stage, 7> kStages{
      {{16, 1, 1}, {24, 2, 2}, {32, 2, 3}, {64, 2, 4}, {96, 1, 3}, {160, 2, 3}, {320, 1, 1}}};
  nn::GraphBuilder b({.image = options.image_shape(), .name = name, .batch_norm = batch_norm(1e-3, 0.999)});
  Value x = append(b, "Conv1", "bn_Conv1", b.input(), convolution(3, 32, 3, 2), "Conv1_relu");
  int number = 0;
  for (const Stage& stage : kStages) {
    for (int i = 0; i < stage.blocks; ++i) {
      x = inverted_residual(b, number++, x, stage.channels, i == 0 ? stage.stride : 1);
    }
  }
  x = append(b, "Conv_1", "Conv_1_bn", x, convolution(320, 1280, 1), "out_relu");
  x = b.global_average_pool("global_average_pooling2d", x);
  return b.build(append_dense(b, "predictions", x, options.num_classes));
}

const ModelRegistration kMobilenetV2(model("mobilenet_v2", "MobileNetV2", build));

}  // namespace
}  // namespace trainyard::models::keras::mobilenet_v2
