// torchvision's ShuffleNet v2. Ma, Zhang, Zheng, Sun, "ShuffleNet V2: practical guidelines for efficient CNN
// architecture design", 2018.

#include <array>

#include "trainyard/models/torchvision/layers.h"

namespace trainyard::models::torchvision::shufflenet_v2 {
namespace {

// Convolution and norm at `place` and after of a Sequential.
Value append(nn::GraphBuilder& b, const std::string& prefix, int place, Value x, nn::Convolution op) {
  op.weight_init = nn::Initializer::he_uniform();
  x = b.convolution(fmt::format("{}.{}", prefix, place), x, op);
  return b.batch_norm(fmt::format("{}.{}", prefix, place + 1), x);
}

Value main_branch(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride) {
  x = append(b, prefix, 0, x, centred_convolution(channels, 1));
  x = append(b, prefix, 3, b.activation(prefix + ".2", x), centred_convolution(channels, 3, stride, channels));
  return b.activation(prefix + ".7", append(b, prefix, 5, x, centred_convolution(channels, 1)));
}

// The channels' first half passes by; with a stride all of them go through both branches.
Value unit(nn::GraphBuilder& b, const std::string& prefix, Value x, int64_t channels, int64_t stride) {
  const int64_t half = channels / 2, in = b.shape(x)[0];
  Value past{}, y = x;
  if (stride == 1) {
    past = b.channel_slice(prefix + ".first", x, {.begin = 0, .count = half});
    y = b.channel_slice(prefix + ".second", x, {.begin = half, .count = half});
  } else {
    past = append(b, prefix + ".branch1", 0, x, centred_convolution(in, 3, stride, in));
    past = append(b, prefix + ".branch1", 2, past, centred_convolution(half, 1));
    past = b.activation(prefix + ".branch1.4", past);
  }
  y = main_branch(b, prefix + ".branch2", y, half, stride);
  return b.channel_shuffle(prefix + ".shuffle", b.concat(prefix + ".concat", {past, y}), 2);
}

nn::Graph build(const ModelOptions& options, const std::string& name) {
  constexpr std::array<int, 3> kUnits{4, 8, 4};
  nn::GraphBuilder b({.image = options.image_shape(), .name = name});
  Value x = b.activation("conv1.2", append(b, "conv1", 0, b.input(), centred_convolution(24, 3, 2)));
  x = b.max_pool("maxpool", x, {.kernel = 3, .stride = 2, .padding = nn::Padding::all(1)});
  for (int stage = 0; stage < 3; ++stage) {
    for (int i = 0; i < kUnits[static_cast<size_t>(stage)]; ++i) {
      x = unit(b, fmt::format("stage{}.{}", stage + 2, i), x, int64_t{116} << stage, i == 0 ? 2 : 1);
    }
  }
  x = b.activation("conv5.2", append(b, "conv5", 0, x, centred_convolution(1024, 1)));
  return b.build(append_linear(b, "fc", b.global_average_pool("avgpool", x), options.num_classes));
}

const ModelRegistration kShufflenet(model("shufflenet_v2_x1_0", build));

}  // namespace
}  // namespace trainyard::models::torchvision::shufflenet_v2
