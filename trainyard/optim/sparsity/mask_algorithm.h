// Computes the masks of 2:4 sparsity, as the algorithms of PaddlePaddle's ASP do (optim/sparsity/prune.h).
//
// A weight is viewed as a matrix, as in Paddle:
//
//   linear       [out, in]       rows out, columns in
//   convolution  [K, C, R, S]    rows (S, R, K), K the quickest, columns C: fours lie along the inputs of one pixel
//
// Rows and, for algorithms in two dimensions, columns are padded with zeros to a multiple of four. A weight of fewer
// than four columns stays dense: depthwise convolutions and most first layers.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainyard::optim {

enum class MaskAlgorithm;

// Returns true for weights that have fours: two or four dimensions, and at least four inputs.
[[nodiscard]] bool can_be_sparse(at::IntArrayRef shape);

// Returns [shape of weight] bool, true where a weight stays; all true where can_be_sparse() is false. weight: [K, C, R,
// S] or [out, in], float or double, in the host's memory. Among equal magnitudes the later one stays, as with a stable
// sort (NumPy's, on which Paddle's code rests, is not stable on processors with AVX-512); among equal sums the pattern
// that Paddle tries first. The same on any number of threads. Throws kInvalidArgument for a tensor of another form and
// for one with NaN or infinity.
[[nodiscard]] at::Tensor sparsity_mask(const at::Tensor& weight, MaskAlgorithm algorithm);

// Returns true when no four has more than two that are not zero. weight: as for sparsity_mask(), with can_be_sparse().
[[nodiscard]] bool is_two_of_four(const at::Tensor& weight);

}  // namespace trainyard::optim
