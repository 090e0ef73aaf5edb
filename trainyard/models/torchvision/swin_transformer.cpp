// torchvision's Swin transformer. Liu et al., "Swin transformer: hierarchical vision transformer using shifted
// windows", 2021.

#include <array>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::swin_transformer {
namespace {

struct SwinConfig {
  int64_t channels, window;
  std::array<int, 4> blocks;
  std::array<int64_t, 4> heads;
  double depth_drop;  // of the last block; the others' rise to it
};

// What torchvision starts linear layers with. Its normal distribution is cut at 100 deviations.
const nn::Initializer kStart = nn::Initializer::normal(0.02);

// Windows divide an image that has rows and columns of zeros added, which attention then sees through the bias of its
// first linear layer; they are taken away again.
Value append_attention(nn::GraphBuilder& b, const std::string& prefix, Value x, const nn::Attention& op) {
  const int64_t channels = b.shape(x)[0], height = b.shape(x)[1], width = b.shape(x)[2];
  const int64_t below = (op.window - height % op.window) % op.window;
  const int64_t beside = (op.window - width % op.window) % op.window;
  const bool pads = below > 0 || beside > 0;
  if (pads) x = b.spatial_pad(prefix + ".pad", x, {.bottom = below, .right = beside});
  x = b.attention(prefix, append_pixel_linear(b, prefix + ".qkv", x, 3 * channels, kStart), op);
  x = append_pixel_linear(b, prefix + ".proj", x, channels, kStart);
  return pads ? b.spatial_pad(prefix + ".cut", x, {.bottom = -below, .right = -beside}) : x;
}

Value append_block(nn::GraphBuilder& b, const std::string& prefix, Value x, const nn::Attention& op, double drop) {
  const int64_t channels = b.shape(x)[0];
  Value y = append_attention(b, prefix + ".attn", b.layer_norm(prefix + ".norm1", x, {}), op);
  x = b.add(prefix + ".add1", {b.stochastic_depth(prefix + ".stochastic_depth1", y, drop), x});
  y = append_pixel_linear(b, prefix + ".mlp.0", b.layer_norm(prefix + ".norm2", x, {}), 4 * channels, kStart);
  y = b.activation(prefix + ".mlp.1", y, Function::kGelu);
  y = append_pixel_linear(b, prefix + ".mlp.3", y, channels, kStart);
  return b.add(prefix + ".add2", {b.stochastic_depth(prefix + ".stochastic_depth2", y, drop), x});
}

nn::Graph build(const SwinConfig& config, const ModelOptions& options, const std::string& name) {
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  nn::Convolution stem = with_default_start({.out_channels = config.channels, .kernel = 4, .stride = 4}, 3);
  Value x = b.layer_norm("features.0.2", b.convolution("features.0.0", b.input(), stem), {});
  x = append_stages(
      x, config.blocks, options.stochastic_depth.value_or(config.depth_drop),
      [&](const std::string& prefix, Value y, size_t /*stage*/) {
        y = b.layer_norm(prefix + ".norm", b.patch_merge(prefix + ".merge", y), {});
        return b.convolution(prefix + ".reduction", y,
                             {.out_channels = b.shape(y)[0] / 2,
                              .kernel = 1,
                              .weight_init = kStart,
                              .form = nn::Convolution::Form::kLinear});
      },
      [&](const std::string& prefix, Value y, size_t stage, int i, double drop) {
        const nn::Attention op{
            .heads = config.heads[stage], .window = config.window, .shift = i % 2 == 0 ? 0 : config.window / 2};
        return append_block(b, prefix, y, op, drop);
      });
  x = b.global_average_pool("avgpool", b.layer_norm("norm", x, {}));
  return b.build(append_normal_linear(b, "head", x, options.num_classes, kStart.value));
}

const ModelRegistration kTiny(model(
    "swin_t",
    [](const ModelOptions& options, const std::string& name) {
      return build({.channels = 96, .window = 7, .blocks = {2, 2, 6, 2}, .heads = {3, 6, 12, 24}, .depth_drop = 0.2},
                   options, name);
    },
    kRateWithoutNorm));

}  // namespace
}  // namespace trainyard::models::torchvision::swin_transformer
