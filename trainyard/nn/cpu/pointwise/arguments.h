// The arguments of convolutions with 1x1 windows and stride 1 of float maps, as products of matrices on blocked maps:
//   output[pixel][out] = sum over in of source[pixel][in] * weights[out][in]
// The gradient of the input is the same product with inputs for outputs.
//
// Maps are blocked as the instruction set has it (arguments.h of nn/cpu/kernels, whose rules hold here). Every kernel
// uses the calling thread's OpenMP team, no larger than `threads`, and gives the same bits for any number.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu {

struct PointwiseShape {
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;  // padded: whole blocks
  int64_t pixels = 0;                         // of an image
};

// Packs weights as they lie in the parameter set, float [out, in]: for the output, or, `backward`, for the gradient of
// the input.
struct PointwisePack {
  int64_t in_channels = 0, out_channels = 0;  // of the plain weights, not padded
  bool backward = false;
  const float* plain = nullptr;
  float* packed = nullptr;  // [padded out * padded in], aligned to 64
};

// output = [relu] (convolution (+ bias) (+ output's old values)).
struct PointwiseForward {
  PointwiseShape shape;
  const float* source = nullptr;
  const float* weights = nullptr;  // packed
  const float* bias = nullptr;     // [bias_count], or null
  int64_t bias_count = 0;
  bool add = false, relu = false;
  float* output = nullptr;
  void* scratch = nullptr;  // aligned to 64
  int threads = 1;
  int64_t* scratch_bytes = nullptr;  // if not null, nothing is computed: receives the bytes of scratch for `threads`
};

// gradient: float [padded out][padded in].
struct PointwiseBackwardWeights {
  PointwiseShape shape;
  const float* source = nullptr;
  const float* output_gradient = nullptr;
  float* gradient = nullptr;
  float* bias_gradient = nullptr;  // [bias_count], or null
  int64_t bias_count = 0;
};

}  // namespace trainyard::nn::cpu
