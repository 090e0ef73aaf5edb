// Finds the scales of activations and weights, and rounds weights.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"

namespace trainyard::nn {

// Values from low to high. Contains zero: low <= 0 <= high.
struct ValueRange {
  double low = 0, high = 0;
  bool operator==(const ValueRange&) const = default;
};

// Returns whether the range can be divided into 255 steps of normal floats. Otherwise all values are zero in effect.
[[nodiscard]] bool is_usable(const ValueRange& range);

// Returns the scale whose 256 values cover the range, with the zero point that makes zero one of them. A range that is
// not usable gets a scale of 1.
[[nodiscard]] ActivationScale activation_scale(const ValueRange& range);

// Returns the scale of each output channel (the first dimension): max |w| / 127, and 1 for a channel of zeros.
[[nodiscard]] std::vector<float> weight_scales(const at::Tensor& weight);

// Returns the weights [out, ...] rounded to scale[o] * q, q in -127..127.
[[nodiscard]] at::Tensor rounded_weights(const at::Tensor& weight, const std::vector<float>& scales);

// Rounds the weights of a convolution or linear layer in the set to scale[o] * q, q in -127..127.
void round_weights(const Node& layer, const std::vector<float>& scales, ParameterSet& set);

}  // namespace trainyard::nn
