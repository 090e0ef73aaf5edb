// torchvision's RegNets with squeeze-and-excitation (Y). Radosavovic, Kosaraju, Girshick, He, Dollar, "Designing
// network design spaces", 2020: the stages below are what its formula of four parameters gives.

#include <array>

#include "trainyard/models/torchvision/squeeze_excitation.h"

namespace trainyard::models::torchvision::regnet {
namespace {

struct RegnetConfig {
  std::array<int, 4> blocks;
  std::array<int64_t, 4> widths;
  int64_t group_width = 8;
};

Value block(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t width, int64_t stride,
            int64_t group_width) {
  const int64_t in = b.shape(x)[0];
  Value y = append_conv_norm(b, prefix + ".f.a", x, centred_convolution(width, 1), Function::kRelu);
  y = append_conv_norm(b, prefix + ".f.b", y, centred_convolution(width, 3, stride, width / group_width),
                       Function::kRelu);
  y = append(b, prefix + ".f.se", y, {.squeezed = in / 4, .default_bias = true});
  y = append_conv_norm(b, prefix + ".f.c", y, centred_convolution(width, 1), std::nullopt);
  Value past = x;
  if (in != width || stride != 1) {
    past = append_conv_norm(b, prefix + ".proj", x, centred_convolution(width, 1, stride), std::nullopt);
  }
  return b.activation(prefix + ".activation", b.add(prefix + ".add", {y, past}));
}

nn::Graph build(const RegnetConfig& config, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  Value x = append_conv_norm(b, "stem", b.input(), centred_convolution(32, 3, 2), Function::kRelu);
  for (size_t stage = 0; stage < config.blocks.size(); ++stage) {
    for (int i = 0; i < config.blocks[stage]; ++i) {
      x = block(b, fmt::format("trunk_output.block{0}.block{0}-{1}", stage + 1, i), x, config.widths[stage],
                i == 0 ? 2 : 1, config.group_width);
    }
  }
  return b.build(append_normal_linear(b, "fc", b.global_average_pool("avgpool", x), options.num_classes));
}

ModelInfo regnet(const std::string& name, const RegnetConfig& config) {
  return model(
      name, [config](const ModelOptions& options, const std::string& graph) { return build(config, options, graph); });
}

const ModelRegistration kY400(regnet("regnet_y_400mf",
                                     {.blocks = {1, 3, 6, 6}, .widths = {48, 104, 208, 440}, .group_width = 8}));
const ModelRegistration kY1600(regnet("regnet_y_1_6gf",
                                      {.blocks = {2, 6, 17, 2}, .widths = {48, 120, 336, 888}, .group_width = 24}));

}  // namespace
}  // namespace trainyard::models::torchvision::regnet
