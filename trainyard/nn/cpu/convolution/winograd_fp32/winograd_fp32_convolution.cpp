#include "trainyard/nn/cpu/convolution/winograd_fp32/winograd_fp32_convolution.h"

#include <tuple>
#include <utility>

#include "trainyard/nn/cpu/convolution/own_kernel.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd_bf16_convolution.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

// The shape of the forward. The gradient of the input is a forward with inputs and outputs exchanged.
WinogradFp32Shape float_shape_of(const ConvolutionShape& s, const ConvolutionKernel::Options& options) {
  WinogradFp32Shape shape{.tile = options.algorithm == ConvolutionAlgorithm::kWinograd2 ? 2 : 4,
                          .batch = s.batch,
                          .in_channels = in_whole_blocks(s.in_channels),
                          .out_channels = in_whole_blocks(s.out_channels)};
  const bool backward = options.direction == ConvolutionDirection::kBackwardData;
  if (backward) std::swap(shape.in_channels, shape.out_channels);
  std::tie(shape.in_height, shape.out_height) =
      backward ? std::pair(s.out_height, s.in_height) : std::pair(s.in_height, s.out_height);
  std::tie(shape.in_width, shape.out_width) =
      backward ? std::pair(s.out_width, s.in_width) : std::pair(s.in_width, s.out_width);
  shape.top = backward ? 2 - s.top : s.top;
  shape.left = backward ? 2 - s.left : s.left;
  return shape;
}

class WinogradFp32Kernel : public OwnKernel<winograd_fp32_forward, winograd_fp32_backward_weights> {
 public:
  WinogradFp32Kernel(const ConvolutionShape& shape, const Options& options)
      : OwnKernel(shape, options, float_shape_of(shape, options)) {
    if (is(ConvolutionDirection::kBackwardWeights)) {
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
                        .backward = is(ConvolutionDirection::kBackwardData),
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

 private:
  int64_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ConvolutionKernel> make_winograd_fp32_convolution(const ConvolutionShape& shape,
                                                                  const ConvolutionKernel::Options& options) {
  if (shape.dtype != DataType::kFloat || !fits_winograd(shape, options)) return nullptr;
  return std::make_unique<WinogradFp32Kernel>(shape, options);
}

}  // namespace trainyard::nn::cpu
