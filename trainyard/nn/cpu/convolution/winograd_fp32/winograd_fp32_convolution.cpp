#include "trainyard/nn/cpu/convolution/winograd_fp32/winograd_fp32_convolution.h"

#include <omp.h>

#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd_bf16_convolution.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

// The shape of the forward. The gradient of the input is a forward with inputs and outputs exchanged.
WinogradFp32Shape float_shape_of(const ConvolutionShape& s, const ConvolutionKernel::Options& options) {
  const int64_t tile = options.algorithm == ConvolutionAlgorithm::kWinograd2 ? 2 : 4;
  const int64_t in = in_whole_blocks(s.in_channels), out = in_whole_blocks(s.out_channels);
  if (options.direction == ConvolutionDirection::kBackwardData) {
    return {.tile = tile,
            .batch = s.batch,
            .in_channels = out,
            .out_channels = in,
            .in_height = s.out_height,
            .in_width = s.out_width,
            .out_height = s.in_height,
            .out_width = s.in_width,
            .top = 2 - s.top,
            .left = 2 - s.left};
  }
  return {.tile = tile,
          .batch = s.batch,
          .in_channels = in,
          .out_channels = out,
          .in_height = s.in_height,
          .in_width = s.in_width,
          .out_height = s.out_height,
          .out_width = s.out_width,
          .top = s.top,
          .left = s.left};
}

class WinogradFp32Kernel : public ConvolutionKernel {
 public:
  WinogradFp32Kernel(const ConvolutionShape& shape, const Options& options)
      : options_(options),
        shape_(float_shape_of(shape, options)),
        in_channels_(shape.in_channels),
        out_channels_(shape.out_channels),
        threads_(omp_get_max_threads()) {
    if (options.direction == ConvolutionDirection::kBackwardWeights) {
      winograd_fp32_backward_weights({.shape = shape_, .threads = threads_, .scratch_bytes = &scratch_bytes_});
    } else {
      winograd_fp32_forward({.shape = shape_, .threads = threads_, .scratch_bytes = &scratch_bytes_});
    }
  }

  int64_t weights_bytes() const override { return shape_.weights_bytes(); }
  int64_t scratch_bytes() const override { return scratch_bytes_; }
  const char* implementation() const override { return shape_.tile == 4 ? "winograd 4x4" : "winograd 2x2"; }

  void pack(const float* plain, void* packed) const override {
    winograd_fp32_pack({.tile = shape_.tile,
                        .in_channels = in_channels_,
                        .out_channels = out_channels_,
                        .backward = options_.direction == ConvolutionDirection::kBackwardData,
                        .plain = plain,
                        .packed = static_cast<float*>(packed)});
  }
  void unpack(const void* packed, float* plain) const override {
    winograd_fp32_unpack({.tile = shape_.tile,
                          .in_channels = in_channels_,
                          .out_channels = out_channels_,
                          .gradient = static_cast<const float*>(packed),
                          .plain = plain});
  }

  void forward(const void* source, const void* weights, const float* bias, void* output, void* scratch) const override {
    winograd_fp32_forward({.shape = shape_,
                           .source = static_cast<const float*>(source),
                           .weights = static_cast<const float*>(weights),
                           .bias = bias,
                           .bias_count = out_channels_,
                           .add = options_.sum,
                           .relu = options_.activation == UnitActivation::kRelu,
                           .output = static_cast<float*>(output),
                           .scratch = scratch,
                           .threads = threads_});
  }
  void backward_data(const void* output_gradient, const void* weights, void* source_gradient,
                     void* scratch) const override {
    winograd_fp32_forward({.shape = shape_,
                           .source = static_cast<const float*>(output_gradient),
                           .weights = static_cast<const float*>(weights),
                           .output = static_cast<float*>(source_gradient),
                           .scratch = scratch,
                           .threads = threads_});
  }
  void backward_weights(const void* source, const void* output_gradient, void* weights_gradient, float* bias_gradient,
                        void* scratch) const override {
    winograd_fp32_backward_weights({.shape = shape_,
                                    .source = static_cast<const float*>(source),
                                    .output_gradient = static_cast<const float*>(output_gradient),
                                    .gradient = static_cast<float*>(weights_gradient),
                                    .bias_gradient = bias_gradient,
                                    .bias_count = out_channels_,
                                    .scratch = scratch,
                                    .threads = threads_});
  }

 private:
  Options options_;
  WinogradFp32Shape shape_;
  int64_t in_channels_, out_channels_;
  int threads_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ConvolutionKernel> make_winograd_fp32_convolution(const ConvolutionShape& shape,
                                                                  const ConvolutionKernel::Options& options) {
  if (shape.dtype != DataType::kFloat || !fits_winograd(shape, options)) return nullptr;
  return std::make_unique<WinogradFp32Kernel>(shape, options);
}

}  // namespace trainyard::nn::cpu
