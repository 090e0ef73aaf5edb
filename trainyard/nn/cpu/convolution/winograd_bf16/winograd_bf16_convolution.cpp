#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd_bf16_convolution.h"

#include <algorithm>
#include <initializer_list>

#include "trainyard/nn/cpu/convolution/own_kernel.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd.h"
#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::nn::cpu {
namespace {

winograd_bf16::Shape shape_of(const ConvolutionShape& s, const ConvolutionKernel::Options& options) {
  const winograd_bf16::Shape shape{.tile = options.algorithm == ConvolutionAlgorithm::kWinograd3 ? 3 : 2,
                                   .batch = s.batch,
                                   .in_channels = in_whole_blocks(s.in_channels),
                                   .out_channels = in_whole_blocks(s.out_channels),
                                   .in_height = s.in_height,
                                   .in_width = s.in_width,
                                   .out_height = s.out_height,
                                   .out_width = s.out_width,
                                   .top = s.top,
                                   .left = s.left};
  return options.direction == ConvolutionDirection::kBackwardData ? winograd_bf16::backward_data_shape(shape) : shape;
}

class WinogradKernel : public OwnKernel<winograd_bf16::forward, winograd_bf16::backward_weights> {
 public:
  WinogradKernel(const ConvolutionShape& shape, const Options& options)
      : OwnKernel(shape, options, shape_of(shape, options)) {}

  int64_t weights_bytes() const override {
    return backward_weights_only() ? winograd_bf16::gradient_bytes(shape_) : winograd_bf16::weights_bytes(shape_);
  }
  int64_t scratch_bytes() const override {
    return backward_weights_only() ? winograd_bf16::backward_weights_scratch_bytes(shape_, threads_)
                                   : winograd_bf16::forward_scratch_bytes(shape_, threads_);
  }
  const char* implementation() const override { return shape_.tile == 2 ? "winograd 2x2" : "winograd 3x3"; }

  void pack(const float* plain, void* packed) const override {
    const winograd_bf16::Pack task{.tile = shape_.tile,
                                   .in_channels = in_channels_,
                                   .out_channels = out_channels_,
                                   .plain = plain,
                                   .packed = packed,
                                   .threads = threads_};
    is(ConvolutionDirection::kForward) ? winograd_bf16::pack_forward(task) : winograd_bf16::pack_backward(task);
  }
  void unpack(const void* packed, float* plain) const override {
    winograd_bf16::unpack({.tile = shape_.tile,
                           .in_channels = in_channels_,
                           .out_channels = out_channels_,
                           .gradient = static_cast<const float*>(packed),
                           .plain = plain,
                           .threads = threads_});
  }

 private:
  bool backward_weights_only() const { return is(ConvolutionDirection::kBackwardWeights); }
};

}  // namespace

int64_t in_whole_blocks(int64_t channels) {
  return MapShape{.channels = channels, .block = channel_block()}.padded_channels();
}

bool fits_winograd(const ConvolutionShape& s, const ConvolutionKernel::Options& options) {
  const auto is = [](int64_t value, std::initializer_list<int64_t> all) {
    return std::all_of(all.begin(), all.end(), [&](int64_t one) { return one == value; });
  };
  const auto padding = std::minmax({s.top, s.left, s.bottom, s.right});
  return !s.plain_input && is(3, {s.kernel_height, s.kernel_width}) &&
         is(1, {s.groups, s.stride_height, s.stride_width, s.dilation_height, s.dilation_width}) &&
         padding.first >= 0 && padding.second <= 2 && s.out_height == s.in_height + s.top + s.bottom - 2 &&
         s.out_width == s.in_width + s.left + s.right - 2 && std::min(s.out_height, s.out_width) > 0 &&
         (options.activation == UnitActivation::kNone || options.activation == UnitActivation::kRelu);
}

std::unique_ptr<ConvolutionKernel> make_winograd_bf16_convolution(const ConvolutionShape& shape,
                                                                  const ConvolutionKernel::Options& options) {
  if (isa() != Isa::kAvx512Bf16 || shape.dtype != DataType::kBfloat16 || !fits_winograd(shape, options)) return nullptr;
  return std::make_unique<WinogradKernel>(shape, options);
}

}  // namespace trainyard::nn::cpu
