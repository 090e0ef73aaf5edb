// 2:4 sparsity: two of each four consecutive weights along a layer's inputs are zero, which sparse tensor cores compute
// at twice the speed (Mishra et al., "Accelerating sparse deep neural networks", 2021). The algorithms select the two
// weights to keep, and are those of PaddlePaddle's ASP (paddle.incubate.asp), whose masks these are bit for bit.
//
// A weight is viewed as a matrix, as in Paddle:
//
//   linear       [out, in]       rows out, columns in
//   convolution  [K, C, R, S]    rows (S, R, K), K the quickest, columns C: fours lie along the inputs of one pixel
//
// Rows and, for algorithms in two dimensions, columns are padded with zeros to a multiple of four. A weight of fewer
// than four columns stays dense: depthwise convolutions and most first layers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

enum class MaskAlgorithm {
  // Keeps the two of the greatest magnitude in each four.
  kMask1d,
  // In each 4 x 4 block keeps the greatest magnitudes, as long as no row and no column has more than two: the transpose
  // is 2:4, too. In some blocks only seven are kept, because the remaining row and column do not meet.
  kMask2dGreedy,
  // In each 4 x 4 block selects the one of the 90 patterns with two in each row and column that keeps the greatest sum
  // of magnitudes. Greedy keeps 0.974 of it on average for uniform weights and 0.985 for normal ones.
  kMask2dBest,
  // Does the same by the sum of signed weights, as Paddle's mask_2d_best computes, contrary to its description: it
  // drops large negative weights.
  kMask2dBestSigned,
};

// "mask_1d", "mask_2d_greedy", "mask_2d_best", "mask_2d_best_signed".
const std::vector<std::string>& mask_algorithm_names();
std::string_view mask_algorithm_name(MaskAlgorithm algorithm);
// Returns the algorithm of that name. Throws kInvalidArgument, with the nearest name.
[[nodiscard]] MaskAlgorithm mask_algorithm_from_name(std::string_view name);

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
TRAINYARD_EXPORT_END
