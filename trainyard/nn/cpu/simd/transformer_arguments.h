// The arguments of the kernels of layer norm and attention. Follows the rules of arguments.h.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/simd/feature_map.h"

namespace trainyard::nn::cpu {

// nn::LayerNorm of each pixel: output = (input - mean) * inverse_deviation * weight + bias.
struct LayerNormForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  double epsilon = 1e-5;
  const void* input = nullptr;
  const float *weight = nullptr, *bias = nullptr;  // [channels]
  void* output = nullptr;
  float *mean = nullptr, *inverse_deviation = nullptr;  // [batch, pixels] out, or null
};

// The backward of LayerNormForward. With xhat = (input - mean) * inverse_deviation and d = gradient * weight:
//   weight' = sum gradient * xhat, bias' = sum gradient, over batch and pixels
//   input' (+)= inverse_deviation * (d - mean(d) - xhat * mean(d * xhat)), the means over channels
struct LayerNormBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* gradient = nullptr;
  const void* input = nullptr;  // as in forward
  const float* weight = nullptr;
  const float *mean = nullptr, *inverse_deviation = nullptr;  // of forward
  void* input_gradient = nullptr;
  bool accumulate = false;
  float *weight_gradient = nullptr, *bias_gradient = nullptr;  // [padded] out
};

// nn::Attention, for heads that fill whole blocks: shape.channels / heads is a multiple of the block. A thread computes
// one window and head at a time and keeps its scores in memory of its own.
struct AttentionPlaces {
  MapShape shape;         // of the output; the input has three times its channels: queries, keys, values
  int64_t pixels_in = 1;  // of the input
  DataType dtype = DataType::kFloat;
  int64_t heads = 1, windows = 1, tokens = 1;
  int64_t queries = 1;  // number of first tokens of a window that have queries; the output has only their pixels
  const int32_t* pixels = nullptr;   // [windows, tokens]: of the input
  const int32_t* regions = nullptr;  // [windows, tokens] or null: between tokens of different ones, scores get -100
  const float* bias = nullptr;       // [heads, tokens, tokens] or null: added to the scores
};
struct AttentionForward {
  AttentionPlaces places;
  const void* input = nullptr;
  void* output = nullptr;
  float* log_sums = nullptr;  // [batch, heads, windows, queries] out, or null: log(sum_j exp(score[i, j]))
  // In float: memory_floats() for each thread of the team, aligned to 64 bytes. Memory that each call would ask the
  // system for costs a third of the time of a small batch, since all of its pages are new.
  float* memory = nullptr;

  static constexpr int64_t kQueryBlock = 24;  // queries whose scores are made at once
  [[gnu::always_inline]] static int64_t memory_floats(const AttentionPlaces& a, int64_t lanes) {
    const int64_t padded = (a.tokens + lanes - 1) / lanes * lanes, depth = a.shape.channels / a.heads;
    return (5 * padded * depth + kQueryBlock * padded + 15) / 16 * 16;
  }
};
struct AttentionBackward {
  AttentionPlaces places;
  const void* gradient = nullptr;  // of the output
  const void* input = nullptr;
  const float* log_sums = nullptr;
  void* input_gradient = nullptr;
  bool accumulate = false;
  float* bias_gradient = nullptr;  // [batch, heads, tokens, tokens] out with a bias: one a sample, to be summed
};

}  // namespace trainyard::nn::cpu
