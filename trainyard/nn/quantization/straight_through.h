// Rounding to 8 bits in a training: forward computes with the rounded numbers, backward as if they were not rounded
// (the straight-through estimator: Bengio, Léonard, Courville, "Estimating or propagating gradients through stochastic
// neurons for conditional computation", 2013; Jacob et al., "Quantization and training of neural networks for efficient
// integer-arithmetic-only inference", 2018, section 3).
#pragma once

#include <ATen/core/Tensor.h>

#include "trainyard/nn/graph/quantization.h"

namespace trainyard::nn {

// Returns the nearest numbers that the scale has, of the shape of x, float or double, on the CPU; those of
// fake_quantize() (quantized_numbers.h), but NaN stays NaN. The gradient is that of the result where x, rounded, is
// inside the range of the scale, and zero where x is outside.
[[nodiscard]] at::Tensor round_straight_through(const at::Tensor& x, const ActivationScale& scale);

// Returns rounded_weights() by the weights' own weight_scales(): [out, ...] float, on the CPU. The gradient is that of
// the result: no weight is outside the range that its own scale has.
[[nodiscard]] at::Tensor round_weights_straight_through(const at::Tensor& weight);

}  // namespace trainyard::nn
