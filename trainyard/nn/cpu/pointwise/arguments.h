// The arguments of the gradients of convolutions with 1x1 windows and stride 1 of float maps, as products of matrices
// on blocked maps:
//   input_gradient[pixel][in] = sum over out of output_gradient[pixel][out] * weights[out][in]
//   weights_gradient[out][in] = sum over pixels of output_gradient[pixel][out] * input[pixel][in]
//
// They are for AVX2, where maps have blocks of 8 channels, and follow the rules of nn/cpu/kernels/arguments.h. Every
// kernel uses the calling thread's OpenMP team, no larger than `threads`, and gives the same bits for any number.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu {

struct PointwiseShape {
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;  // padded: whole blocks
  int64_t pixels = 0;                         // of an image
};

// Packs weights as they lie in the parameter set, float [out, in], for the gradient of the input.
struct PointwisePack {
  int64_t in_channels = 0, out_channels = 0;  // of the plain weights, not padded
  const float* plain = nullptr;
  float* packed = nullptr;  // [padded out * padded in], aligned to 64
};

struct PointwiseBackwardData {
  PointwiseShape shape;
  const float* output_gradient = nullptr;
  const float* weights = nullptr;  // packed
  float* input_gradient = nullptr;
  void* scratch = nullptr;  // aligned to 64
  int threads = 1;
  int64_t* scratch_bytes = nullptr;  // if not null, nothing is computed: receives the bytes of scratch for `threads`
};

// weights_gradient: float [padded out][padded in].
struct PointwiseBackwardWeights {
  PointwiseShape shape;
  const float* input = nullptr;
  const float* output_gradient = nullptr;
  float* weights_gradient = nullptr;
  float* bias_gradient = nullptr;  // [bias_count], or null
  int64_t bias_count = 0;
};

}  // namespace trainyard::nn::cpu
