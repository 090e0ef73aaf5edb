// Rounds tensors to 8 bits, by the definitions of nn/graph/quantization.h.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"

namespace trainyard::nn {

// Returns the nearest numbers that the scale has, of the shape and dtype of x: any float dtype. NaN becomes zero.
[[nodiscard]] at::Tensor fake_quantize(const at::Tensor& x, const ActivationScale& scale);

// Returns the integers of a layer's weights [out, ...], float, with a scale each output channel: round(w / scale), ties
// to even, as int8 of the same shape. Throws kInvalidArgument, which names the layer and the channel, for a weight that
// is not within -127..127 then, such as NaN.
[[nodiscard]] at::Tensor quantize_weights(const Node& node, const at::Tensor& weight, const std::vector<float>& scales);

// Throws kInvalidArgument, which names the layer, where one of its biases, float [out], is NaN or infinite: in 8 bits
// it would be lost.
void check_quantized_bias(const Node& node, const at::Tensor& bias);

}  // namespace trainyard::nn
