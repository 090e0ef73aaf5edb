#include "trainyard/nn/cpu/convolution/pixel_pairs/pixel_pairs_convolution.h"

#include <algorithm>

#include <omp.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/convolution/pixel_pairs/pixel_pairs.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd_bf16_convolution.h"
#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::nn::cpu {
namespace {

class PixelPairsKernel : public ConvolutionKernel {
 public:
  explicit PixelPairsKernel(const ConvolutionShape& s)
      : in_channels_(s.in_channels),
        shape_{.batch = s.batch,
               .in_channels = in_whole_blocks(s.in_channels),
               .out_channels = in_whole_blocks(s.out_channels),
               .real_outputs = s.out_channels,
               .in_height = s.in_height,
               .in_width = s.in_width,
               .out_height = s.out_height,
               .out_width = s.out_width,
               .kernel_height = s.kernel_height,
               .kernel_width = s.kernel_width,
               .stride_height = s.stride_height,
               .stride_width = s.stride_width,
               .dilation_height = s.dilation_height,
               .dilation_width = s.dilation_width,
               .top = s.top,
               .left = s.left} {}

  int64_t weights_bytes() const override { return pixel_pairs::gradient_bytes(shape_); }
  int64_t scratch_bytes() const override { return pixel_pairs::backward_weights_scratch_bytes(shape_, threads_); }
  const char* implementation() const override { return "pixel pairs"; }
  bool has_plain_gradient() const override { return shape_.taps() == 1 && shape_.in_channels == in_channels_; }

  void pack(const float* /*plain*/, void* /*packed*/) const override { unavailable(); }
  void unpack(const void* packed, float* plain) const override {
    const auto* from = static_cast<const float*>(packed);
    if (has_plain_gradient()) {
      std::copy_n(from, shape_.real_outputs * in_channels_, plain);
      return;
    }
    pixel_pairs::unpack({.in_channels = in_channels_,
                         .out_channels = shape_.real_outputs,
                         .taps = shape_.taps(),
                         .gradient = from,
                         .plain = plain,
                         .threads = threads_});
  }

  void forward(const void* /*source*/, const void* /*weights*/, const float* /*bias*/, void* /*output*/,
               void* /*scratch*/) const override {
    unavailable();
  }
  void backward_data(const void* /*output_gradient*/, const void* /*weights*/, void* /*source_gradient*/,
                     void* /*scratch*/) const override {
    unavailable();
  }
  void backward_weights(const void* source, const void* output_gradient, void* weights_gradient, float* bias_gradient,
                        void* scratch) const override {
    pixel_pairs::backward_weights({.shape = shape_,
                                   .source = source,
                                   .output_gradient = output_gradient,
                                   .gradient = static_cast<float*>(weights_gradient),
                                   .bias_gradient = bias_gradient,
                                   .bias_count = shape_.real_outputs,
                                   .scratch = scratch,
                                   .threads = threads_});
  }

 private:
  [[noreturn]] static void unavailable() {
    throw core::Error(core::ErrorCode::kInternal, {.problem = "a kernel for gradients of weights was run otherwise"});
  }

  const int64_t in_channels_;  // of the plain weights, not padded
  const int threads_ = omp_get_max_threads();
  const pixel_pairs::Shape shape_;
};

}  // namespace

std::unique_ptr<ConvolutionKernel> make_pixel_pairs_convolution(const ConvolutionShape& s,
                                                                const ConvolutionKernel::Options& options) {
  const bool fits = options.direction == ConvolutionDirection::kBackwardWeights && isa() == Isa::kAvx512Bf16 &&
                    s.dtype == DataType::kBfloat16 && !s.plain_input && s.groups == 1;
  return fits ? std::make_unique<PixelPairsKernel>(s) : nullptr;
}

}  // namespace trainyard::nn::cpu
