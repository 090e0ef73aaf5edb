// Strassen's product of matrices (Strassen, "Gaussian elimination is not optimal", 1969) as a table: both factors and
// the result are cut in halves in each dimension, and seven products of sums of the parts take the place of eight.
//
// Strassen's own form, not Winograd's with fewer additions: what is multiplied are sums of two numbers at most, where
// Winograd's has sums of four, and less is lost by rounding.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu {

// The four parts of a matrix are numbered by rows.
struct StrassenTable {
  static constexpr int kProducts = 7, kCuts = 2, kParts = 4;
  // Product r multiplies the sums of left[r][i] * part i of the left factor, and right[r][j] * part j of the right one;
  // result[r][k] times it are added to part k of the result.
  int8_t left[kProducts][kParts] = {}, right[kProducts][kParts] = {}, result[kProducts][kParts] = {};
};

inline constexpr StrassenTable kStrassenTable = {
    .left = {{1, 0, 0, 1}, {0, 0, 1, 1}, {1, 0, 0, 0}, {0, 0, 0, 1}, {1, 1, 0, 0}, {-1, 0, 1, 0}, {0, 1, 0, -1}},
    .right = {{1, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, -1}, {-1, 0, 1, 0}, {0, 0, 0, 1}, {1, 1, 0, 0}, {0, 0, 1, 1}},
    .result = {{1, 0, 0, 1}, {0, 0, 1, -1}, {0, 1, 0, 1}, {1, 0, 1, 0}, {-1, 1, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}}};

// Weights lie in panels of so many blocks of each part of the outputs, of which the last may have fewer.
inline constexpr int64_t kStrassenPanelBlocks = 2;

}  // namespace trainyard::nn::cpu
