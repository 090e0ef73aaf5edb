// What each kernel of the CPU plan works on: plain pointers and sizes. Included by code that is compiled for one
// instruction set (see kernels.h), so it includes nothing that has code of its own.
//
// Maps are in blocked layout (nn/cpu/feature_map.h) with the block of the instruction set, of `dtype`; sums are fp32 or
// wider, never 16 bits. Vectors "[padded]" are float with one element a padded channel, zero in pad lanes. No output
// may overlap an input unless it says so. Kernels use the calling thread's OpenMP team, and give the same bits for any
// number of threads.
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/feature_map.h"

namespace trainyard::nn::cpu {

enum class UnitActivation : uint8_t { kNone, kRelu, kRelu6, kSilu, kHardSwish, kHardSigmoid, kSigmoid, kGelu, kTanh };

// Training forward of batch normalization and what follows it, in one pass over memory behind the statistics' one:
//   mean, variance over (batch, pixels); scale = weight / sqrt(variance + epsilon); shift = bias - mean * scale
//   output = activation(input * scale + shift [+ residual])
struct NormForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kNone;  // with a residual: kNone or kRelu
  double epsilon = 1e-5;
  const void* input = nullptr;
  const void* residual = nullptr;  // or null
  const float* weight = nullptr;   // [channels] or null for ones
  const float* bias = nullptr;     // [channels]
  void* output = nullptr;          // may be `input` or `residual`
  uint8_t* mask = nullptr;         // with residual and kRelu: one bit an element, set where output > 0
  float* mean = nullptr;           // [padded] out
  float* variance = nullptr;       // [padded] out, biased
  float* scale = nullptr;          // [padded] out
  float* shift = nullptr;          // [padded] out
};

constexpr int kMaxGradients = 4;

// Its backward. With u = input * scale + shift (+ residual), the sum of the incoming gradients g, d = g *
// activation'(u):
//   bias' = sum d, weight' = sum d * xhat, xhat = (input - mean) / sqrt(variance + epsilon)
//   input' = scale * (d - mean(d) - xhat * mean(d * xhat))
struct NormBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kNone;
  double epsilon = 1e-5;
  const void* gradients[kMaxGradients] = {};  // added up in registers
  int gradient_count = 1;
  const void* input = nullptr;    // as in forward
  const uint8_t* mask = nullptr;  // of forward with residual and kRelu; otherwise u is computed again
  const float *mean = nullptr, *variance = nullptr, *scale = nullptr, *shift = nullptr;  // [padded], of forward
  void* masked = nullptr;            // null, or where d goes: the residual's gradient. May be one of `gradients`
  void* input_gradient = nullptr;    // may be one of `gradients`, or `input`
  float* weight_gradient = nullptr;  // [padded] out
  float* bias_gradient = nullptr;    // [padded] out
};

// output = activation(input * scale + shift [+ residual]): inference, and recomputation of NormForward's output.
struct ScaleShift {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kNone;
  const void* input = nullptr;
  const void* residual = nullptr;                  // or null
  const float *scale = nullptr, *shift = nullptr;  // [padded]
  void* output = nullptr;                          // may be `input` or `residual`
};

// Plain [N, C, H, W] float (any strides, in elements) -> map, and back. Pad lanes are written as zeros.
struct ToBlocked {
  MapShape shape;
  DataType dtype = DataType::kFloat;  // of the map
  const float* plain = nullptr;
  int64_t strides[4] = {};
  void* map = nullptr;
};
struct ToPlain {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* map = nullptr;
  float* plain = nullptr;  // contiguous [N, C, H, W]
};

// output = activation(sum of inputs); with kRelu and a mask: as NormForward's.
struct SumForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kNone;  // kNone or kRelu
  const void* inputs[kMaxGradients] = {};
  int input_count = 2;
  uint8_t* mask = nullptr;  // or null
  void* output = nullptr;   // may be one of `inputs`
};

// output = activation(input).
struct ActivationForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kRelu;
  const void* input = nullptr;
  void* output = nullptr;  // may be `input`
};

// input_gradient (+)= (sum of gradients) * activation'(input); where mask is given: * the mask's bits instead.
struct ActivationBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  UnitActivation activation = UnitActivation::kRelu;
  const void* gradients[kMaxGradients] = {};
  int gradient_count = 1;
  const void* input = nullptr;
  const uint8_t* mask = nullptr;
  void* input_gradient = nullptr;  // may be one of `gradients`
  bool accumulate = false;
};

struct Window {
  int64_t kernel_height = 1, kernel_width = 1, stride_height = 1, stride_width = 1;
  int64_t top = 0, left = 0;  // padding; at the bottom and right whatever the output's size asks for
};

// Maximum over the pixels inside the image; the first of equal ones in row order gets the gradient. `place` keeps
// which: the index in the window, one byte an output element (kernels up to 255 pixels).
struct MaxPoolForward {
  MapShape input_shape, output_shape;
  DataType dtype = DataType::kFloat;
  Window window;
  const void* input = nullptr;
  void* output = nullptr;
  uint8_t* place = nullptr;  // or null in inference
};
struct MaxPoolBackward {
  MapShape input_shape, output_shape;
  DataType dtype = DataType::kFloat;
  Window window;
  const void* gradient = nullptr;  // of the output
  const uint8_t* place = nullptr;
  void* input_gradient = nullptr;
  bool accumulate = false;
};

// Average over a window: divided by the pixels inside the image, or by those inside the padded one
// (`bottom` and `right` say how far that reaches; nn::Pool::count_padding).
struct AveragePool {
  MapShape input_shape, output_shape;
  DataType dtype = DataType::kFloat;
  Window window;
  int64_t bottom = 0, right = 0;
  bool count_padding = false;
  const void* input = nullptr;  // backward: the gradient of the output
  void* output = nullptr;       // backward: the gradient of the input
  bool accumulate = false;      // backward only
};

// map -> float [N, C] means over pixels; backward: map (+)= gradient / pixels.
struct GlobalAverageForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* input = nullptr;
  float* output = nullptr;  // contiguous
};
struct GlobalAverageBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const float* gradient = nullptr;  // [N, C] contiguous
  void* input_gradient = nullptr;
  bool accumulate = false;
};

// output = input * factor, factor float [N, C] contiguous (squeeze-and-excitation).
struct ScaleChannelsForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* input = nullptr;
  const float* factor = nullptr;
  void* output = nullptr;
};
struct ScaleChannelsBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* gradient = nullptr;
  const void* input = nullptr;
  const float* factor = nullptr;
  void* input_gradient = nullptr;
  bool accumulate = false;
  float* factor_gradient = nullptr;  // [N, C] out: sum over pixels of gradient * input
};

// Copies channels [from, from + count) of `source` to channels [to, to + count) of `target`: one input of a concat, its
// backward, channel padding. Other channels of `target` stay as they are, or become zero with `clear_rest`; pad lanes
// become zero in every block that is written to (with `clear_rest`: all). With strides > 1 pixel (y, x) of the smaller
// image is (y * stride, x * stride) of the larger one: source is subsampled forward; in backward (`spread`) the rest of
// target's pixels become zero in the copied channels (with `accumulate`: nothing is added to them).
struct CopyChannels {
  MapShape source_shape, target_shape;
  DataType dtype = DataType::kFloat;
  int64_t from = 0, to = 0, count = 0;
  int64_t stride_height = 1, stride_width = 1;
  bool spread = false;
  const void* source = nullptr;
  void* target = nullptr;
  bool accumulate = false;
  bool clear_rest = false;
};

// nn::LocalResponseNorm. Backward computes the sums again.
struct LocalResponseForward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  int64_t radius = 0;
  float bias = 1, alpha = 1, beta = 0.5;
  const void* input = nullptr;
  void* output = nullptr;
};
struct LocalResponseBackward {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  int64_t radius = 0;
  float bias = 1, alpha = 1, beta = 0.5;
  const void* gradient = nullptr;
  const void* input = nullptr;
  void* input_gradient = nullptr;
  bool accumulate = false;
};

// output = input * factor of each sample and, where channels are given, element: stochastic depth and dropout.
// `factor` is float [N] (per_element false), or float [N, C, H, W] contiguous (true). Forward and backward are the
// same.
struct ScaleSamples {
  MapShape shape;
  DataType dtype = DataType::kFloat;
  const void* input = nullptr;
  const float* factor = nullptr;
  bool per_element = false;
  void* output = nullptr;  // may be `input`
  bool accumulate = false;
};

}  // namespace trainyard::nn::cpu
