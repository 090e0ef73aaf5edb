// The arguments of Winograd's convolutions F(4x4, 3x3) and F(2x2, 3x3) (Lavin and Gray,
// https://arxiv.org/abs/1509.09308) of float maps: 3x3 windows, stride 1, one group. Output is made in tiles of 4x4
// pixels, each from 6x6 pixels of input with 36 products a channel pair instead of 144, or in tiles of 2x2, each from
// 4x4 with 16 products instead of 36:
//   tile = A^T [(G filter G^T) * (B^T pixels B)] A
// The products are 36 or 16 matrix multiplications, one for each position in the square of input ("point"). The
// polynomials of F(4x4, 3x3) are evaluated at 0, 5/8, -5/8, 3/2, -3/2 and infinity, which loses half as much as the
// usual 0, 1, -1, 2, -2: measured by norm on 64 channels of uniform numbers, the result is 7.8e-7 off the convolution
// by definition, and 1.7e-6 then. Those of F(2x2, 3x3) are evaluated at 0, 1, -1 and infinity.
//
// Maps have the block of the instruction set (nn/cpu/simd/arguments.h, whose rules apply here). Every kernel uses the
// calling thread's OpenMP team, no larger than `threads`, and gives the same bits for any number.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu {

struct WinogradFp32Shape {
  int64_t tile = 4;  // 4 or 2: the pixels of a tile's side
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;  // padded: whole blocks
  int64_t in_height = 0, in_width = 0, out_height = 0, out_width = 0;
  int64_t top = 0, left = 0;  // zero padding before the image; missing pixels after it count as zero, too

  [[gnu::always_inline]] int64_t points() const { return (tile + 2) * (tile + 2); }
  [[gnu::always_inline]] int64_t tile_rows() const { return (out_height + tile - 1) / tile; }
  [[gnu::always_inline]] int64_t tile_columns() const { return (out_width + tile - 1) / tile; }
  [[gnu::always_inline]] int64_t tiles() const { return batch * tile_rows() * tile_columns(); }
  // Returns the elements from one point of transformed weights, or of their gradient, to the next: a cache line more
  // than there are, since the numbers of all points would otherwise fight for one set of the cache.
  [[gnu::always_inline]] int64_t point_elements() const { return in_channels * out_channels + 16; }
  // Returns the bytes of transformed weights, and of the gradient of them.
  [[gnu::always_inline]] int64_t weights_bytes() const { return points() * point_elements() * 4; }
};

// Packs weights from the parameter set, float [out, in, 3, 3]: for the output, or, `backward`, for the gradient of the
// input, which is the convolution with the filters rotated by 180 degrees, and inputs and outputs exchanged.
struct WinogradFp32Pack {
  int64_t tile = 4;
  int64_t in_channels = 0, out_channels = 0;  // of the plain weights, not padded
  bool backward = false;
  const float* plain = nullptr;
  float* packed = nullptr;  // weights_bytes(), aligned to 64
};

// output = [relu] (convolution (+ bias) (+ output's old values)). The gradient of the input is the forward of the shape
// with inputs and outputs exchanged, and padding 2 - top, 2 - left.
struct WinogradFp32Forward {
  WinogradFp32Shape shape;
  const float* source = nullptr;
  const float* weights = nullptr;
  const float* bias = nullptr;  // [bias_count], or null
  int64_t bias_count = 0;
  bool add = false, relu = false;
  float* output = nullptr;
  void* scratch = nullptr;  // aligned to 64
  int threads = 1;
  int64_t* scratch_bytes = nullptr;  // if not null, nothing is computed: receives the bytes of scratch for `threads`
};

// gradient: float [point][in][out] of the transformed weights, points point_elements() apart.
struct WinogradFp32BackwardWeights {
  WinogradFp32Shape shape;
  const float* source = nullptr;
  const float* output_gradient = nullptr;
  float* gradient = nullptr;       // weights_bytes()
  float* bias_gradient = nullptr;  // [bias_count], or null
  int64_t bias_count = 0;
  void* scratch = nullptr;  // aligned to 64
  int threads = 1;
  int64_t* scratch_bytes = nullptr;  // if not null, nothing is computed: receives the bytes of scratch for `threads`
};

// Turns the result of WinogradFp32BackwardWeights into the gradient of the plain weights, float [out, in, 3, 3].
struct WinogradFp32Unpack {
  int64_t tile = 4;
  int64_t in_channels = 0, out_channels = 0;  // of the plain weights, not padded
  const float* gradient = nullptr;
  float* plain = nullptr;
};

}  // namespace trainyard::nn::cpu
