// Convolutions in blocked layout: oneDNN's kernels (onednn_convolution.h), ours for what it lacks or does slowly
// (grouped_convolution.h, winograd_bf16_convolution.h, winograd_fp32_convolution.h, pointwise_convolution.h,
// pixel_pairs_convolution.h, strassen_convolution.h, amx_convolution.h), and LibTorch's (libtorch_kernel.h). Weights
// come in plain [out, in / groups, height, width] float and are packed into the layout of each direction; a packed copy
// is valid until the values change.
#pragma once

#include <cstdint>
#include <memory>

#include "trainyard/nn/cpu/simd/arguments.h"
#include "trainyard/nn/cpu/simd/feature_map.h"
#include "trainyard/nn/execution/unreached_weights.h"

namespace trainyard::nn::cpu {

struct ConvolutionShape {
  int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  int64_t in_height = 1, in_width = 1, out_height = 1, out_width = 1;
  int64_t kernel_height = 1, kernel_width = 1, stride_height = 1, stride_width = 1;
  int64_t dilation_height = 1, dilation_width = 1;
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  bool bias = false;
  DataType dtype = DataType::kFloat;  // of the maps; weights are packed in it, gradients of weights stay float
  bool plain_input = false;           // the input is plain [N, C, H, W] of `dtype` (a network's first convolution)
  bool operator==(const ConvolutionShape&) const = default;

  int64_t flops() const {  // of one direction
    return 2 * batch * out_channels * (in_channels / groups) * kernel_height * kernel_width * out_height * out_width;
  }
};

// Returns the positions of the kernel whose weights have a gradient of zero, because they meet no pixel in any window.
UnreachedWeights unreached_weights(const ConvolutionShape& shape);

enum class ConvolutionAlgorithm : uint8_t {
  kDirect,
  kWinograd,    // oneDNN's in float, with AVX-512; ours in bfloat16: F(2x2, 3x3)
  kWinograd4,   // ours in float: F(4x4, 3x3)
  kWinograd2,   // ours in float: F(2x2, 3x3)
  kWinograd3,   // ours in bfloat16: F(3x3, 3x3)
  kPointwise,   // ours in float: 1x1
  kStrassen,    // ours for products of matrices: seven products of parts instead of eight
  kPixelPairs,  // ours in bfloat16: the gradient of weights, any window
  kAmx,         // ours in bfloat16, on a processor with AMX
  kLibtorch,    // LibTorch's in bfloat16, with copies to channels_last and back
};
enum class ConvolutionDirection : uint8_t { kForward, kBackwardData, kBackwardWeights };

// One direction for one shape and algorithm. Immutable once made: any thread may run it, several at a time. Running it
// uses the calling thread's OpenMP team, which may be no larger than it was when the kernel was made.
class ConvolutionKernel {
 public:
  struct Options {
    ConvolutionDirection direction = ConvolutionDirection::kForward;
    ConvolutionAlgorithm algorithm = ConvolutionAlgorithm::kDirect;
    bool inference = false;                             // forward: nothing is kept for a backward
    bool sum = false;                                   // forward: adds to `output` before the activation
    UnitActivation activation = UnitActivation::kNone;  // forward: one that is_fusable()
    // Only multiplies the numbers that the definition multiplies: !multiplies_pairs(). Slow in 16 bits, and without a
    // plain input.
    bool exact = false;
  };

  // Returns whether forward kernels may compute the activation. The activation must map zero to zero, which is the
  // value of pad lanes.
  static bool is_fusable(UnitActivation activation);

  // Returns null when there is no such kernel. There is a direct one for every valid shape without a plain input and
  // with no activation but ReLU. Throws kInternal when oneDNN fails.
  static std::unique_ptr<ConvolutionKernel> make(const ConvolutionShape& shape, const Options& options);

  ConvolutionKernel() = default;
  virtual ~ConvolutionKernel() = default;
  ConvolutionKernel(const ConvolutionKernel&) = delete;
  ConvolutionKernel& operator=(const ConvolutionKernel&) = delete;

  // Return the bytes of the packed weights (backward weights: of their gradient), and of the scratch memory for
  // running.
  virtual int64_t weights_bytes() const = 0;
  virtual int64_t scratch_bytes() const = 0;
  // Returns a name for messages: oneDNN's name, "lanes", "winograd 2x2", "winograd 3x3", "winograd 4x4", "pointwise",
  // "pixel pairs", "strassen", "amx", "libtorch", or "patches" and the name of the kernel that is used on them.
  virtual const char* implementation() const = 0;
  // Returns whether it needs numbers far from overflow (plan/nan_guard.h): the activation turns NaN into a number, or
  // sums with numbers of other results are multiplied.
  virtual bool hides_nan() const { return false; }
  // Returns whether channels of a group are multiplied by zeros for other groups' sums, where NaN and infinity leave
  // NaN.
  virtual bool mixes_groups() const { return false; }
  // Returns whether numbers are multiplied in pairs, of which one may be a neighbour times zero: NaN and infinity leave
  // NaN in results that do not depend on them.
  virtual bool multiplies_pairs() const { return false; }

  // Backward weights: returns whether packed gradients are plain, so that the caller may have them written directly to
  // their destination, without unpack().
  virtual bool has_plain_gradient() const { return false; }

  // Packs the weights `plain`, float and contiguous.
  virtual void pack(const float* plain, void* packed) const = 0;
  // Backward weights: unpacks the gradient to `plain`, float and contiguous.
  virtual void unpack(const void* packed, float* plain) const = 0;

  // A kernel implements the one for its direction. source, output and their gradients are maps, except for a plain
  // input. weights, weights_gradient: packed. bias, bias_gradient: [out_channels] float, or null.
  virtual void forward(const void* source, const void* weights, const float* bias, void* output,
                       void* scratch) const = 0;
  virtual void backward_data(const void* output_gradient, const void* weights, void* source_gradient,
                             void* scratch) const = 0;
  virtual void backward_weights(const void* source, const void* output_gradient, void* weights_gradient,
                                float* bias_gradient, void* scratch) const = 0;

  // The same. Return false where the kernel mixes results and one of them, before the activation, is not finite: then
  // others may be wrong, and an exact kernel has to compute all.
  [[nodiscard]] virtual bool forward_is_finite(const void* source, const void* weights, const float* bias, void* output,
                                               void* scratch) const {
    forward(source, weights, bias, output, scratch);
    return true;
  }
  [[nodiscard]] virtual bool backward_data_is_finite(const void* output_gradient, const void* weights,
                                                     void* source_gradient, void* scratch) const {
    backward_data(output_gradient, weights, source_gradient, scratch);
    return true;
  }

  // Forward: returns the same kernel with this activation, one that is not is_fusable(), behind its sums; null where it
  // has none.
  virtual std::unique_ptr<ConvolutionKernel> with_activation(UnitActivation) const { return nullptr; }
};

}  // namespace trainyard::nn::cpu
