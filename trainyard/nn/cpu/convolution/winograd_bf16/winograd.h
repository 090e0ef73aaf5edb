// Winograd's convolutions F(2x2, 3x3) and F(3x3, 3x3) (Lavin and Gray, https://arxiv.org/abs/1509.09308) of bfloat16
// maps: 3x3 windows, stride 1, one group, on processors with AVX512_BF16. Output is made in tiles of 2x2 or 3x3 pixels,
// each from 4x4 or 5x5 pixels of input with 16 or 25 products a channel pair instead of 36 or 81:
//   tile = A^T [(G filter G^T) * (B^T pixels B)] A
// The products are a matrix multiplication for each position in that square ("point"), in bfloat16 with float sums.
// Weights are transformed from float and rounded once; the transformed pixels are rounded, too. Measured by norm on
// normally distributed numbers, the result is 4.6e-3 (2x2) off the convolution of unrounded numbers, where a direct one
// in bfloat16 is 2.9e-3 off. Of rounded numbers it is 4.1e-3 (2x2) and 6.2e-3 (3x3) off, a direct one 1.7e-3.
//
// Included by code that is compiled for this instruction set only, so it includes nothing that has code of its own
// (nn/cpu/simd/kernels.h). Every function uses `threads` threads of OpenMP and gives the same bits for any number.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/convolution/own_kernel_arguments.h"

namespace trainyard::nn::cpu::winograd_bf16 {

struct Shape {
  int64_t tile = 2;  // 2 or 3: pixels of its sides in the output
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;  // padded: whole blocks of 16
  int64_t in_height = 0, in_width = 0, out_height = 0, out_width = 0;
  int64_t top = 0, left = 0;  // zero padding before the image; missing pixels after it count as zero, too

  [[gnu::always_inline]] int64_t side() const { return tile + 2; }
  [[gnu::always_inline]] int64_t points() const { return side() * side(); }
  [[gnu::always_inline]] int64_t tile_rows() const { return (out_height + tile - 1) / tile; }
  [[gnu::always_inline]] int64_t tile_columns() const { return (out_width + tile - 1) / tile; }
  [[gnu::always_inline]] int64_t tiles() const { return batch * tile_rows() * tile_columns(); }
};

// Returns the shape whose forward computes the gradient of `shape`'s input.
[[gnu::always_inline]] inline Shape backward_data_shape(const Shape& shape) {
  return {.tile = shape.tile,
          .batch = shape.batch,
          .in_channels = shape.out_channels,
          .out_channels = shape.in_channels,
          .in_height = shape.out_height,
          .in_width = shape.out_width,
          .out_height = shape.in_height,
          .out_width = shape.in_width,
          .top = 2 - shape.top,
          .left = 2 - shape.left};
}

// Returns the bytes of transformed weights.
[[gnu::always_inline]] inline int64_t weights_bytes(const Shape& shape) {
  return shape.points() * shape.in_channels * shape.out_channels * 2;
}

// Packs weights from the parameter set, float [out, in, 3, 3], for forward(): pack_forward() for the output,
// pack_backward() for the gradient of the input.
struct Pack {
  int64_t tile = 2;
  int64_t in_channels = 0, out_channels = 0;  // of the plain weights, not padded
  const float* plain = nullptr;
  void* packed = nullptr;  // weights_bytes(), aligned to 64
  int threads = 1;
};
void pack_forward(const Pack& a);
void pack_backward(const Pack& a);

using Forward = OwnForward<Shape>;
int64_t forward_scratch_bytes(const Shape& shape, int threads);
void forward(const Forward& a);

// gradient: float [point][in][out], of the transformed weights.
using BackwardWeights = OwnBackwardWeights<Shape>;
[[gnu::always_inline]] inline int64_t gradient_bytes(const Shape& shape) {
  return 2 * weights_bytes(shape);
}
int64_t backward_weights_scratch_bytes(const Shape& shape, int threads);
void backward_weights(const BackwardWeights& a);

// Turns the result of backward_weights() into the gradient of the plain weights, float [out, in, 3, 3].
struct Unpack {
  int64_t tile = 2;
  int64_t in_channels = 0, out_channels = 0;  // of the plain weights, not padded
  const float* gradient = nullptr;
  float* plain = nullptr;
  int threads = 1;
};
void unpack(const Unpack& a);

}  // namespace trainyard::nn::cpu::winograd_bf16
