// Convolution on oneDNN, in blocked layout: the only file (with its source) of the CPU plan that calls oneDNN's
// primitives. Weights come in plain [out, in / groups, height, width] float and are packed into the layout that each
// direction wants; a packed copy is good until the values change.
#pragma once

#include <cstdint>
#include <memory>

#include "trainyard/nn/cpu/feature_map.h"
#include "trainyard/nn/cpu/kernels/arguments.h"

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

enum class ConvolutionAlgorithm : uint8_t { kDirect, kWinograd };
enum class ConvolutionDirection : uint8_t { kForward, kBackwardData, kBackwardWeights };

// One direction for one shape and algorithm. Immutable once made: any thread may run it, several at a time. Executing
// uses the calling thread's OpenMP team.
class ConvolutionKernel {
 public:
  struct Options {
    ConvolutionDirection direction = ConvolutionDirection::kForward;
    ConvolutionAlgorithm algorithm = ConvolutionAlgorithm::kDirect;
    bool inference = false;                             // forward: nothing is kept for a backward
    bool sum = false;                                   // forward: adds to what `output` holds, before the activation
    UnitActivation activation = UnitActivation::kNone;  // forward: kNone or kRelu
  };

  // Null when oneDNN has no such kernel for the shape (Winograd for 1x1, say) or only its slow reference.
  static std::unique_ptr<ConvolutionKernel> make(const ConvolutionShape& shape, const Options& options);
  ~ConvolutionKernel();

  // Bytes of the packed weights (backward weights: of their gradient), and of the memory that run() needs besides.
  int64_t weights_bytes() const;
  int64_t scratch_bytes() const;
  const char* implementation() const;  // oneDNN's name of it

  // plain: float, contiguous.
  void pack(const float* plain, void* packed) const;
  // Backward weights: packed gradient -> plain.
  void unpack(const void* packed, float* plain) const;

  // forward: source -> output. bias: [out_channels] float.
  void forward(const void* source, const void* weights, const float* bias, void* output, void* scratch) const;
  void backward_data(const void* output_gradient, const void* weights, void* source_gradient, void* scratch) const;
  void backward_weights(const void* source, const void* output_gradient, void* weights_gradient, float* bias_gradient,
                        void* scratch) const;

 private:
  struct Impl;
  explicit ConvolutionKernel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::nn::cpu
