// The engine's own CUDA kernels, on raw pointers: no LibTorch here, so that nvcc compiles them quickly. All run in
// order on `stream`, write every element of their outputs, use no atomics (the same inputs give the same bits) and
// throw kInternal when a launch fails. Matrices are [rows, channels], channels innermost, without gaps.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "trainyard/core/cuda/check_cuda.h"
#include "trainyard/core/cuda/element.h"
#include "trainyard/nn/cuda/kernels/row_grid.h"
#include "trainyard/nn/cuda/kernels/weight_copies.h"
#include "trainyard/nn/graph/ops.h"

namespace trainyard::nn::cuda {

using core::cuda::Element;

struct RowShape {
  int64_t rows = 0;
  int channels = 0;
  Element element = Element::kFloat;
  RowGrid grid;
};

// The activation that a kernel applies to each element of its result.
struct Nonlinearity {
  bool present = false;
  Activation::Function function = Activation::Function::kRelu;
};

// z = (x - center) * scale + offset for each channel: [channels] float each; null: 0, 1 and 0.
struct ChannelAffine {
  const float* center = nullptr;
  const float* scale = nullptr;
  const float* offset = nullptr;
};

// Sums over rows: [grid.row_blocks, 2, channels] float, one pair a block, added up in a fixed order by what follows.
// moments: of x - k and its square with k the channel's first element, against cancellation (Chan, Golub, LeVeque,
// "Algorithms for computing the sample variance", 1983).
void moments(const RowShape& shape, const void* x, float* partial, cudaStream_t stream);

// Batch normalization's constants from those sums; all [channels] float. weight null: 1. Statistics are biased for the
// batch; running_variance takes running_variance_factor times the batch's, as nn/graph/ops.h says.
struct NormStatistics {
  const float* weight = nullptr;
  double epsilon = 0, decay = 0, running_variance_factor = 1;
  float *mean = nullptr, *inverse_deviation = nullptr, *scale = nullptr;  // out; scale = weight * inverse_deviation
  float *running_mean = nullptr, *running_variance = nullptr;             // changed
};
void finish_moments(const RowShape& shape, const void* x, const float* partial, const NormStatistics& statistics,
                    cudaStream_t stream);
// scale = weight / sqrt(running_variance + epsilon), for inference.
void inference_scale(int channels, const float* weight, const float* running_variance, double epsilon, float* scale,
                     cudaStream_t stream);

// y = f(affine(x) + residual); residual null: 0. y may be x.
void scale_shift_activate(const RowShape& shape, const void* x, const void* residual, const ChannelAffine& affine,
                          Nonlinearity nonlinearity, void* y, cudaStream_t stream);

// The gradient before the activation, g = dy * f'(z): writes sums over rows of g and of g * (x - center) into
// `partial`, and g into `gradient`; either may be null. f' is computed from the output y if given (relu only), else z
// is recomputed from x. With x null the second sum is 0. dy is the sum of two where the output has two readers.
struct ActivationGradient {
  const void *output_gradient = nullptr, *second_gradient = nullptr;  // null: one reader
  const void *x = nullptr, *y = nullptr;
  ChannelAffine affine;
  Nonlinearity nonlinearity;
};
void gradient_moments(const RowShape& shape, const ActivationGradient& of, void* gradient, float* partial,
                      cudaStream_t stream);

// From the sums of gradient_moments: gradients of weight and bias, written or added to; [channels] float each, null
// when not needed. `coefficients` is [2, channels], for input_gradient; null when not needed.
struct ParameterGradients {
  const float* inverse_deviation = nullptr;
  float *weight = nullptr, *bias = nullptr;
  bool add_weight = false, add_bias = false;
  float* coefficients = nullptr;
};
void finish_gradients(const RowShape& shape, const float* partial, const ParameterGradients& gradients,
                      cudaStream_t stream);

// dx = scale * (g - mean(g) - xhat * mean(g * xhat)): batch normalization's backward (Ioffe and Szegedy, 2015, section
// 3). g is recomputed from `of`, or is its output_gradient when that has no nonlinearity.
void input_gradient(const RowShape& shape, const ActivationGradient& of, const float* coefficients, void* dx,
                    cudaStream_t stream);

// Max pooling, NHWC. `index` is the argmax within the window, row by row (the first of equal ones), 255 for a window
// without pixels; windows have at most 255 pixels. Grids are [batch, height, width, channels].
struct PoolShape {
  int batch = 0, channels = 0, height = 0, width = 0, out_height = 0, out_width = 0;
  int kernel_height = 0, kernel_width = 0, stride_height = 0, stride_width = 0, top = 0, left = 0;
  Element element = Element::kFloat;
  int vector = 1;
};
void max_pool(const PoolShape& shape, const void* x, void* y, uint8_t* index, cudaStream_t stream);
void max_pool_backward(const PoolShape& shape, const void* dy, const uint8_t* index, void* dx, cudaStream_t stream);

// logits [rows, classes] float, labels [rows] -> losses [rows]; gradient [rows, classes] of their mean, null when not
// needed. The loss is that of nn/execution/loss.h. An invalid label makes its row's loss and gradient NaN.
void cross_entropy(int rows, int classes, const float* logits, const int64_t* labels, double smoothing, float* losses,
                   float* gradient, cudaStream_t stream);

// Copies each entry of `copies` (on the device) with one block, into `out` of `element`.
void copy_weights(const float* values, const WeightCopy* copies, int count, Element element, void* out,
                  cudaStream_t stream);

// The mask of dropout, as in nn/execution/keep_mask.h: [samples, per_sample] of 0 and `kept`. `step` is on the device.
struct KeepMask {
  uint64_t seed = 0, name_hash = 0;  // core::stable_hash of the layer's name
  int64_t micro_step = 0, first_sample = 0, samples = 0, per_sample = 0;
  double drop = 0;
  float kept = 1;
};
void keep_mask(const KeepMask& mask, const int64_t* step, Element element, void* out, cudaStream_t stream);
// Sets *step to value, or increments it.
void set_step(int64_t* step, int64_t value, bool advance, cudaStream_t stream);

}  // namespace trainyard::nn::cuda
