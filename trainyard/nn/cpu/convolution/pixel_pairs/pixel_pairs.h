// The gradient of weights of bfloat16 maps by the definition, for any window, stride, dilation and padding, one group,
// on processors with AVX512_BF16:
//   gradient[out][tap][in] = sum over pixels of output_gradient[pixel][out] * input[pixel where the tap meets it][in]
// That is a product of matrices whose summed dimension is the pixels, two at a time. Both maps are rearranged to pairs
// of pixels, a span of pixels at a time, in a core's cache. oneDNN 2.6 does the same for 1x1 windows and stride 1, but
// keeps a processor with two products of pairs a cycle (Zen 5) at 40 to 60 % of what it multiplies.
//
// A pixel that a tap meets outside of the image counts as zero, and so does its partner in a pair that is not full, so
// that no number is multiplied that the definition does not multiply.
//
// Included by code that is compiled for this instruction set only, so it includes nothing that has code of its own
// (nn/cpu/simd/kernels.h). Every function uses `threads` threads of OpenMP and gives the same bits for any number.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/convolution/own_kernel_arguments.h"

namespace trainyard::nn::cpu::pixel_pairs {

struct Shape {
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;  // padded: whole blocks of 16
  int64_t real_outputs = 0;                   // channels whose gradient is made
  int64_t in_height = 0, in_width = 0, out_height = 0, out_width = 0;
  int64_t kernel_height = 0, kernel_width = 0, stride_height = 0, stride_width = 0;
  int64_t dilation_height = 0, dilation_width = 0;
  int64_t top = 0, left = 0;  // zero padding before the image; missing pixels after it count as zero, too

  [[gnu::always_inline]] int64_t taps() const { return kernel_height * kernel_width; }
  [[gnu::always_inline]] int64_t pixels() const { return out_height * out_width; }
};

// The gradient is float [real_outputs][block of in_channels][tap][16].
using BackwardWeights = OwnBackwardWeights<Shape>;
[[gnu::always_inline]] inline int64_t gradient_bytes(const Shape& shape) {
  return shape.real_outputs * shape.taps() * shape.in_channels * 4;
}
int64_t backward_weights_scratch_bytes(const Shape& shape, int threads);
void backward_weights(const BackwardWeights& a);

// Turns the result of backward_weights() into the gradient of the plain weights, float [out, in, height, width].
struct Unpack {
  int64_t in_channels = 0, out_channels = 0;  // of the plain weights, not padded
  int64_t taps = 0;
  const float* gradient = nullptr;
  float* plain = nullptr;
  int threads = 1;
};
void unpack(const Unpack& a);

}  // namespace trainyard::nn::cpu::pixel_pairs
