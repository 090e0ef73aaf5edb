// What kernels of our own are called with. Included by code that is compiled for one instruction set, so it holds no
// code.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu {

// What a forward kernel of our own is called with: output = [relu] (convolution (+ bias) (+ output's old values)).
template <typename ShapeOfKernel>
struct OwnForward {
  ShapeOfKernel shape;
  const void* source = nullptr;
  const void* weights = nullptr;
  const float* bias = nullptr;  // [bias_count], or null
  int64_t bias_count = 0;
  bool add = false, relu = false;
  void* output = nullptr;
  void* scratch = nullptr;  // forward_scratch_bytes(), aligned to 64
  int threads = 1;
};

// What a kernel for the gradient of weights is called with. Each kernel says how the gradient lies.
template <typename ShapeOfKernel>
struct OwnBackwardWeights {
  ShapeOfKernel shape;
  const void* source = nullptr;
  const void* output_gradient = nullptr;
  float* gradient = nullptr;
  float* bias_gradient = nullptr;  // [bias_count], or null
  int64_t bias_count = 0;
  void* scratch = nullptr;  // backward_weights_scratch_bytes(), aligned to 64
  int threads = 1;
};

}  // namespace trainyard::nn::cpu
