// Arguments of the kernels that compute an inverted residual block at once: a 1x1 convolution that expands, a depthwise
// 3x3 one, and a 1x1 one that projects, with the batch norms folded into them. Follows the rules of
// nn/cpu/simd/compiled_for.h.
//
// The expanded map never reaches memory. A thread makes two channel blocks of it at a time, for a few rows, convolves
// these with the 3x3 windows while they are in its nearest cache, and keeps only what the projection reads.
#pragma once

#include <cstdint>
#include <limits>

#include "trainyard/nn/cpu/simd/arguments.h"

namespace trainyard::nn::cpu {

struct InvertedResidualShape {
  int64_t batch = 1;
  int64_t in_channels = 0, hidden_channels = 0, out_channels = 0;
  bool expands = true;  // false: the depthwise convolution reads the input, which has `hidden_channels`
  int64_t in_height = 1, in_width = 1, out_height = 1, out_width = 1;
  int64_t stride = 1, top = 0, left = 0;  // of the depthwise convolution: both strides, and the padding
  // The least and the largest value behind each of the three convolutions, of the last one with the addition. Zero is
  // between them, which is the value of pad lanes.
  struct Limits {
    float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity();
  };
  Limits expanded, convolved, projected;
};

// Who computes what. `shared`: threads share out the hidden channels, meet, and then share out the outputs. Otherwise a
// thread computes some rows of an image, of which there are `bands`, without waiting for others.
struct InvertedResidualPlan {
  bool shared = false;
  int64_t bands = 1;
  int64_t ring_rows = 3;     // of the expanded map that a thread keeps
  int64_t thread_bytes = 0;  // of scratch memory: of each thread,
  int64_t shared_bytes = 0;  // and of all together, behind them
  // Returns the bytes of scratch memory for a team.
  [[gnu::always_inline]] int64_t scratch_bytes(int64_t threads) const {
    return thread_scratch_bytes(thread_bytes, threads) + shared_bytes;
  }
};

// Maps are float or bfloat16, as the function says; weights of the 1x1 convolutions have the same type and are packed
// in panels of two blocks of outputs: [panel][input channel][block][lane], and in bfloat16
// [panel][pair of input channels][block][lane][2]. All others are float, by padded channel.
struct InvertedResidualForward {
  InvertedResidualShape shape;
  InvertedResidualPlan plan;
  const void* source = nullptr;
  const void* expand = nullptr;           // weights; null: !shape.expands
  const float* expand_bias = nullptr;     // [hidden]
  const float* depthwise = nullptr;       // [hidden block][9][lane]
  const float* depthwise_bias = nullptr;  // [hidden]
  const void* project = nullptr;          // weights
  const float* project_bias = nullptr;    // [out]
  const void* residual = nullptr;         // a map that is added, or null; not the output
  void* output = nullptr;                 // not the source
  void* scratch = nullptr;                // aligned to 64 bytes
};

}  // namespace trainyard::nn::cpu
