// Kernels of our own as ConvolutionKernel: what all of them do alike. A kernel adds its shape, its packing and its
// scratch memory.
#pragma once

#include <cstdint>

#include <omp.h>

#include "trainyard/nn/cpu/convolution/convolution.h"

namespace trainyard::nn::cpu {

template <typename Arguments>
Arguments arguments_of(void (*kernel)(const Arguments&));

// The functions take structs such as OwnForward and OwnBackwardWeights; pointers may have types, and add, relu, scratch
// and threads may be missing. The gradient of the input is the forward of `shape_` as the kernel has made it.
template <auto kForward, auto kBackwardWeights>
class OwnKernel : public ConvolutionKernel {
 public:
  void forward(const void* source, const void* weights, const float* bias, void* output, void* scratch) const final {
    Forward a = forward_arguments(source, weights, output, scratch);
    a.bias = bias;
    a.bias_count = out_channels_;
    if constexpr (requires { a.add; }) {
      a.add = options_.sum;
      a.relu = options_.activation == UnitActivation::kRelu || options_.activation == UnitActivation::kRelu6;
      if constexpr (requires { a.most; }) {
        if (options_.activation == UnitActivation::kRelu6) a.most = 6;
      }
    }
    kForward(a);
  }

  void backward_data(const void* output_gradient, const void* weights, void* source_gradient,
                     void* scratch) const final {
    kForward(forward_arguments(output_gradient, weights, source_gradient, scratch));
  }

  void backward_weights(const void* source, const void* output_gradient, void* weights_gradient, float* bias_gradient,
                        void* scratch) const final {
    BackwardWeights a{.shape = shape_};
    a.source = static_cast<decltype(a.source)>(source);
    a.output_gradient = static_cast<decltype(a.output_gradient)>(output_gradient);
    a.gradient = static_cast<float*>(weights_gradient);
    a.bias_gradient = bias_gradient;
    a.bias_count = out_channels_;
    set_memory(a, scratch);
    kBackwardWeights(a);
  }

 protected:
  using Forward = decltype(arguments_of(kForward));
  using BackwardWeights = decltype(arguments_of(kBackwardWeights));
  using Shape = decltype(Forward::shape);

  OwnKernel(const ConvolutionShape& shape, const Options& options, const Shape& own)
      : options_(options), in_channels_(shape.in_channels), out_channels_(shape.out_channels), shape_(own) {}

  bool is(ConvolutionDirection direction) const { return options_.direction == direction; }

  const Options options_;
  const int64_t in_channels_, out_channels_;  // of the plain weights, not padded
  const int threads_ = omp_get_max_threads();
  Shape shape_;

 private:
  Forward forward_arguments(const void* source, const void* weights, void* output, void* scratch) const {
    Forward a{.shape = shape_};
    a.source = static_cast<decltype(a.source)>(source);
    a.weights = static_cast<decltype(a.weights)>(weights);
    a.output = static_cast<decltype(a.output)>(output);
    set_memory(a, scratch);
    return a;
  }

  void set_memory(auto& a, void* scratch) const {
    if constexpr (requires { a.scratch; }) {
      a.scratch = scratch;
      a.threads = threads_;
    }
  }
};

}  // namespace trainyard::nn::cpu
