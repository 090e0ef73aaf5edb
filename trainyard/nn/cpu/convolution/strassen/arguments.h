// The arguments of Strassen's convolutions: products of matrices
//   output[pixel][out] = sum over k of window[pixel][k] * weights[k][out]
// where k counts the channels of the positions of a window, that need seven eighths of the products (algorithm.h). Maps
// are float, or bfloat16 as the function says. Included by code that is compiled for one instruction set, so it holds
// no code.
//
// A slice is so many pixels of an image. Its matrix is cut into two parts of `part_pixels` neighbours each, where the
// last pixel takes the places of missing ones behind the image; its columns into two parts of blocks of k, and the
// outputs into two parts of blocks of channels.
#pragma once

#include <cstdint>
#include <limits>

#include "trainyard/nn/cpu/simd/arguments.h"

namespace trainyard::nn::cpu {

struct StrassenShape {
  int64_t batch = 1;
  int64_t in_channels = 0, out_channels = 0;  // whole blocks
  int64_t in_height = 1, in_width = 1, out_height = 1, out_width = 1;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_height = 1, stride_width = 1, dilation_height = 1, dilation_width = 1, top = 0, left = 0;
};

struct StrassenPlan {
  int64_t part_pixels = 0;
  int64_t slices = 0;      // of an image
  int64_t group = 1;       // panels that a thread makes at once
  bool shared = false;     // threads make the sums of all slices together, meet, and share out the outputs
  int64_t sum_bytes = 0;   // of the sums of one slice
  int64_t part_bytes = 0;  // of the parts of a group of panels, which a thread keeps
};

// Weights are packed as [panel][product][k][lane of the panel], in bfloat16 [panel][product][pair of k][lane][2]; a
// panel is two blocks of each part of the outputs, the last one may have one.
struct StrassenForward {
  StrassenShape shape;
  StrassenPlan plan;
  const void* source = nullptr;
  const void* weights = nullptr;
  const float* bias = nullptr;  // [out_channels], or null
  bool add = false;             // to what the output holds, before the activation
  UnitActivation activation = UnitActivation::kNone;
  void* output = nullptr;
  void* scratch = nullptr;  // aligned to 64: sums, shared or of each thread, and then each thread's parts
  // Becomes true where an output is not finite before its activation: it may be one that does not depend on what is not
  // finite. Null: the caller knows that all are.
  bool* not_finite = nullptr;
};

// For the forward in float of 1x1 windows, with as many inputs and outputs as the product that is made.
struct StrassenPack {
  int64_t in_channels = 0, out_channels = 0;
  bool transposed = false;  // plain: [in][out] instead of [out][in]
  const float* plain = nullptr;
  float* packed = nullptr;
};

}  // namespace trainyard::nn::cpu
