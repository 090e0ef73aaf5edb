// Linear layers on vectors with products in bfloat16, on processors with AVX512_BF16. Maps and weights are float in
// memory and rounded when they are loaded: a second copy of the weights would have to be written and read, and with the
// small batch of a large model, reading the weights is the whole cost of a layer. Sums are float.
//
// Included by code that is compiled for this instruction set only, so it includes nothing that has code of its own
// (nn/cpu/simd/kernels.h). Every function uses `threads` threads of OpenMP and gives the same bits for any number.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu::bf16_linear {

struct Shape {
  int64_t batch = 1, in = 1, out = 1;
};

// output [batch, out] = input [batch, in] * weight [out, in]^T + bias [out]: float, contiguous. A null bias counts as
// zeros.
struct Forward {
  Shape shape;
  const float *input = nullptr, *weight = nullptr, *bias = nullptr;
  float* output = nullptr;
  void* scratch = nullptr;  // forward_scratch_bytes(), aligned to 64
  int threads = 1;
};
int64_t forward_scratch_bytes(const Shape& shape);
void forward(const Forward& a);

// input_gradient [batch, in] = output_gradient [batch, out] * weight [out, in]: float, contiguous.
struct BackwardData {
  Shape shape;
  const float *output_gradient = nullptr, *weight = nullptr;
  float* input_gradient = nullptr;
  void* scratch = nullptr;  // backward_data_scratch_bytes(), aligned to 64
  int threads = 1;
};
int64_t backward_data_scratch_bytes(const Shape& shape);
void backward_data(const BackwardData& a);

// weight_gradient [out, in] (+)= output_gradient [batch, out]^T * input [batch, in]: float, contiguous.
struct BackwardWeights {
  Shape shape;
  const float *input = nullptr, *output_gradient = nullptr;
  float* weight_gradient = nullptr;
  bool accumulate = false;
  void* scratch = nullptr;  // backward_weights_scratch_bytes(), aligned to 64
  int threads = 1;
};
int64_t backward_weights_scratch_bytes(const Shape& shape);
void backward_weights(const BackwardWeights& a);

}  // namespace trainyard::nn::cpu::bf16_linear
