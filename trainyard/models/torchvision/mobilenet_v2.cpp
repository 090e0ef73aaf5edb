// torchvision's MobileNet v2. Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: inverted residuals and linear
// bottlenecks", 2018.

#include <array>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::mobilenet_v2 {
namespace {

Value inverted_residual(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t out, int64_t stride,
                        int64_t expansion) {
  const int64_t in = b.shape(x)[0], hidden = in * expansion;
  int place = 0;
  const auto next = [&] { return fmt::format("{}.conv.{}", prefix, place++); };
  Value y = x;
  if (expansion != 1) y = append_conv_norm(b, next(), y, centred_convolution(hidden, 1), Function::kRelu6);
  y = append_conv_norm(b, next(), y, centred_convolution(hidden, 3, stride, hidden), Function::kRelu6);
  y = b.convolution(next(), y, centred_convolution(out, 1));
  y = b.batch_norm(next(), y);
  return stride == 1 && in == out ? b.add(prefix + ".add", {x, y}) : y;
}

nn::Graph build(const ModelOptions& options, const std::string& name) {
  struct Stage {
    int64_t expansion, channels;
    int blocks;
    int64_t stride;
  };
  constexpr std::array<Stage, 7> kStages{
      {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}};
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  int place = 0;
  const auto next = [&place] { return fmt::format("features.{}", place++); };
  Value x = append_conv_norm(b, next(), b.input(), centred_convolution(32, 3, 2), Function::kRelu6);
  for (const Stage& stage : kStages) {
    for (int i = 0; i < stage.blocks; ++i) {
      x = inverted_residual(b, next(), x, stage.channels, i == 0 ? stage.stride : 1, stage.expansion);
    }
  }
  x = append_conv_norm(b, next(), x, centred_convolution(1280, 1), Function::kRelu6);
  x = b.dropout("classifier.0", b.global_average_pool("avgpool", x), 0.2);
  return b.build(append_normal_linear(b, "classifier.1", x, options.num_classes));
}

const ModelRegistration kMobilenetV2(model("mobilenet_v2", build));

}  // namespace
}  // namespace trainyard::models::torchvision::mobilenet_v2
