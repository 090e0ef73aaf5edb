// The arguments of convolutions with 1x1 windows and stride 1 of float maps, as products of matrices on blocked maps:
//   output[pixel][out] = bias[out] + sum over in of input[pixel][in] * weights[out][in]
//   weights_gradient[out][in] = sum over pixels of output_gradient[pixel][out] * input[pixel][in]
// The gradient of the input is the first product with inputs and outputs exchanged.
//
// Maps have the block of the instruction set (nn/cpu/simd/arguments.h, whose rules apply here). Every kernel uses the
// calling thread's OpenMP team and gives the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <limits>

namespace trainyard::nn::cpu {

struct PointwiseShape {
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;  // padded: whole blocks
  int64_t pixels = 0;                         // of an image
};

// Packs weights from the parameter set, float [out, in]: for the output, or, `backward`, for the gradient of the input.
struct PointwisePack {
  int64_t in_channels = 0, out_channels = 0;  // channels of the plain weights, not padded
  bool backward = false;
  const float* plain = nullptr;
  float* packed = nullptr;  // [padded out * padded in], aligned to 64
};

struct PointwiseForward {
  PointwiseShape shape;
  const float* source = nullptr;
  const float* weights = nullptr;  // packed
  const float* bias = nullptr;     // [bias_count], or null
  int64_t bias_count = 0;
  bool add = false;   // to what the output holds
  bool relu = false;  // what is stored is from 0 to `most`
  float most = std::numeric_limits<float>::infinity();
  float* output = nullptr;
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
