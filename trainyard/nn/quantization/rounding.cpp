#include "trainyard/nn/quantization/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/from_blob.h>

#include "trainyard/nn/quantization/weights_of.h"

namespace trainyard::nn {
namespace {
constexpr double kLevels = 255, kLargestWeight = 127;
}

bool is_usable(const ValueRange& range) {
  const double step = (range.high - range.low) / kLevels;
  return step >= std::numeric_limits<float>::min() && step <= std::numeric_limits<float>::max() / kLevels;
}

ActivationScale activation_scale(const ValueRange& range) {
  if (!is_usable(range)) return {};
  const auto scale = static_cast<float>((range.high - range.low) / kLevels);
  const double zero = std::clamp(std::nearbyint(-range.low / static_cast<double>(scale)), 0.0, kLevels);
  return {.scale = scale, .zero_point = static_cast<uint8_t>(zero)};
}

std::vector<float> weight_scales(const at::Tensor& weight) {
  const at::Tensor largest = weight.detach().abs().flatten(1).amax(1).to(at::kFloat).contiguous();
  std::vector<float> scales(largest.data_ptr<float>(), largest.data_ptr<float>() + largest.numel());
  for (float& scale : scales) {
    scale = static_cast<float>(static_cast<double>(scale) / kLargestWeight);
    if (!(scale >= std::numeric_limits<float>::min())) scale = 1;
  }
  return scales;
}

at::Tensor rounded_weights(const at::Tensor& weight, const std::vector<float>& scales) {
  std::vector<int64_t> by_channel(static_cast<size_t>(weight.dim()), 1);
  by_channel[0] = weight.size(0);
  // from_blob does not write.
  const at::Tensor scale = at::from_blob(const_cast<float*>(scales.data()), by_channel, at::kFloat);
  return weight.div(scale).round_().clamp_(-kLargestWeight, kLargestWeight).mul_(scale);
}

void round_weights(const Node& layer, const std::vector<float>& scales, ParameterSet& set) {
  const at::Tensor weight = weight_of(layer, set);
  weight.copy_(rounded_weights(weight, scales));
}

}  // namespace trainyard::nn
