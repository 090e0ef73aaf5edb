// What the kernels of layer norm and attention work on; with arguments.h's rules.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/kernels/feature_map.h"

namespace trainyard::nn::cpu {

// nn::LayerNorm of each pixel: output = (input - mean) * inverse_deviation * weight + bias.
struct LayerNormForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  double epsilon = 1e-5;
  const void* input = nullptr;
  const float *weight = nullptr, *bias = nullptr;  // [channels]
  void* output = nullptr;
  float *mean = nullptr, *inverse_deviation = nullptr;  // [batch, pixels] out
};

// With xhat = (input - mean) * inverse_deviation and d = gradient * weight:
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

// nn::Attention. Heads fill whole blocks: shape.channels / heads is a multiple of the block. Scores are kept for a
// window and a head at a time, in the thread's scratch memory.
struct AttentionPlaces {
  MapShape shape;         // of the output; the input has three times its channels: queries, keys, values
  int64_t pixels_in = 1;  // of the input
  DataType dtype = DataType::kFloat;
  int64_t heads = 1, windows = 1, tokens = 1;
  int64_t queries = 1;  // of a window: its first tokens; where that are not all, the output has no other pixels
  const int32_t* pixels = nullptr;   // [windows, tokens]: of the input
  const int32_t* regions = nullptr;  // [windows, tokens] or null: -100 is added between tokens of different ones
  const float* bias = nullptr;       // [heads, tokens, tokens] or null: is added to scores, of all tokens
};
struct AttentionForward {
  AttentionPlaces places;
  const void* input = nullptr;
  void* output = nullptr;
  float* log_sums = nullptr;  // [batch, heads, windows, queries] out, or null: log(sum_j exp(score[i, j]))
};
struct AttentionBackward {
  AttentionPlaces places;
  const void* gradient = nullptr;  // of the output
  const void* input = nullptr;
  const float* log_sums = nullptr;
  void* input_gradient = nullptr;
  bool accumulate = false;
  float* bias_gradient =
      nullptr;  // [batch, heads, tokens, tokens] out where there is a bias: each sample's, to be summed
};

}  // namespace trainyard::nn::cpu
