// torchvision's MobileNet v3, small and large. Howard et al., "Searching for MobileNetV3", 2019.

#include <vector>

#include "trainyard/models/torchvision/squeeze_excitation.h"

namespace trainyard::models::torchvision::mobilenet_v3 {
namespace {

struct Block {
  int64_t kernel, expanded, channels;
  bool squeeze;
  Function activation;
  int64_t stride;
};

constexpr Function kRe = Function::kRelu, kHs = Function::kHardSwish;

Value append_block(nn::GraphBuilder& b, const std::string& prefix, Value x, const Block& block) {
  const int64_t in = b.shape(x)[0];
  int place = 0;
  const auto next = [&] { return fmt::format("{}.block.{}", prefix, place++); };
  Value y = x;
  if (block.expanded != in) {
    y = append_conv_norm(b, next(), y, centred_convolution(block.expanded, 1), block.activation);
  }
  y = append_conv_norm(b, next(), y, centred_convolution(block.expanded, block.kernel, block.stride, block.expanded),
                       block.activation);
  if (block.squeeze) {
    const int64_t quarter = block.expanded / 4;
    y = append(b, next(), y,
               {.squeezed = divisible_by_8(static_cast<double>(quarter)), .gate = Function::kHardSigmoid});
  }
  y = append_conv_norm(b, next(), y, centred_convolution(block.channels, 1), std::nullopt);
  return block.stride == 1 && in == block.channels ? b.add(prefix + ".add", {y, x}) : y;
}

nn::Graph build(const std::vector<Block>& blocks, int64_t hidden, const ModelOptions& options,
                const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name, .batch_norm = {.epsilon = 1e-3, .decay = 0.99}});
  int place = 0;
  const auto next = [&place] { return fmt::format("features.{}", place++); };
  Value x = append_conv_norm(b, next(), b.input(), centred_convolution(16, 3, 2), kHs);
  for (const Block& block : blocks) x = append_block(b, next(), x, block);
  x = append_conv_norm(b, next(), x, centred_convolution(6 * b.shape(x)[0], 1), kHs);
  x = append_normal_linear(b, "classifier.0", b.global_average_pool("avgpool", x), hidden);
  x = b.dropout("classifier.2", b.activation("classifier.1", x, kHs), 0.2);
  return b.build(append_normal_linear(b, "classifier.3", x, options.num_classes));
}

ModelInfo mobilenet(const std::string& name, int64_t hidden, const std::vector<Block>& blocks) {
  return model(name, [=](const ModelOptions& options, const std::string& graph) {
    return build(blocks, hidden, options, graph);
  });
}

const ModelRegistration kSmall(mobilenet("mobilenet_v3_small", 1024,
                                         {{3, 16, 16, true, kRe, 2},
                                          {3, 72, 24, false, kRe, 2},
                                          {3, 88, 24, false, kRe, 1},
                                          {5, 96, 40, true, kHs, 2},
                                          {5, 240, 40, true, kHs, 1},
                                          {5, 240, 40, true, kHs, 1},
                                          {5, 120, 48, true, kHs, 1},
                                          {5, 144, 48, true, kHs, 1},
                                          {5, 288, 96, true, kHs, 2},
                                          {5, 576, 96, true, kHs, 1},
                                          {5, 576, 96, true, kHs, 1}}));
const ModelRegistration kLarge(mobilenet("mobilenet_v3_large", 1280,
                                         {{3, 16, 16, false, kRe, 1},
                                          {3, 64, 24, false, kRe, 2},
                                          {3, 72, 24, false, kRe, 1},
                                          {5, 72, 40, true, kRe, 2},
                                          {5, 120, 40, true, kRe, 1},
                                          {5, 120, 40, true, kRe, 1},
                                          {3, 240, 80, false, kHs, 2},
                                          {3, 200, 80, false, kHs, 1},
                                          {3, 184, 80, false, kHs, 1},
                                          {3, 184, 80, false, kHs, 1},
                                          {3, 480, 112, true, kHs, 1},
                                          {3, 672, 112, true, kHs, 1},
                                          {5, 672, 160, true, kHs, 2},
                                          {5, 960, 160, true, kHs, 1},
                                          {5, 960, 160, true, kHs, 1}}));

}  // namespace
}  // namespace trainyard::models::torchvision::mobilenet_v3
