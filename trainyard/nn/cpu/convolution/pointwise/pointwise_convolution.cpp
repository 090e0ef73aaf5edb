#include "trainyard/nn/cpu/convolution/pointwise/pointwise_convolution.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "trainyard/nn/cpu/convolution/own_kernel.h"
#include "trainyard/nn/cpu/convolution/pointwise/pointwise.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd_bf16_convolution.h"

namespace trainyard::nn::cpu {
namespace {

class PointwiseKernel : public OwnKernel<pointwise_forward, pointwise_backward_weights> {
 public:
  PointwiseKernel(const ConvolutionShape& shape, const Options& options)
      : OwnKernel(shape, options,
                  {.batch = shape.batch,
                   .in_channels = in_whole_blocks(shape.in_channels),
                   .out_channels = in_whole_blocks(shape.out_channels),
                   .pixels = shape.in_height * shape.in_width}) {
    if (is(ConvolutionDirection::kBackwardData)) std::swap(shape_.in_channels, shape_.out_channels);
  }

  int64_t weights_bytes() const override { return shape_.in_channels * shape_.out_channels * int64_t{sizeof(float)}; }
  int64_t scratch_bytes() const override { return 0; }
  const char* implementation() const override { return "pointwise"; }
  bool has_plain_gradient() const override {
    return shape_.in_channels == in_channels_ && shape_.out_channels == out_channels_;
  }

  void pack(const float* plain, void* packed) const override {
    pointwise_pack({.in_channels = in_channels_,
                    .out_channels = out_channels_,
                    .backward = is(ConvolutionDirection::kBackwardData),
                    .plain = plain,
                    .packed = static_cast<float*>(packed)});
  }
  void unpack(const void* packed, float* plain) const override {
    const auto* from = static_cast<const float*>(packed);
    if (shape_.in_channels == in_channels_) {
      std::copy_n(from, out_channels_ * in_channels_, plain);
      return;
    }
    for (int64_t out = 0; out < out_channels_; ++out) {
      std::copy_n(from + out * shape_.in_channels, in_channels_, plain + out * in_channels_);
    }
  }
};

}  // namespace

std::unique_ptr<ConvolutionKernel> make_pointwise_convolution(const ConvolutionShape& s,
                                                              const ConvolutionKernel::Options& options) {
  const auto is = [](int64_t value, std::initializer_list<int64_t> all) {
    return std::all_of(all.begin(), all.end(), [&](int64_t one) { return one == value; });
  };
  const bool fits = s.dtype == DataType::kFloat && !s.plain_input &&
                    is(1, {s.kernel_height, s.kernel_width, s.groups, s.stride_height, s.stride_width}) &&
                    is(0, {s.top, s.left, s.bottom, s.right}) && s.out_height == s.in_height &&
                    s.out_width == s.in_width &&
                    (options.activation == UnitActivation::kNone || options.activation == UnitActivation::kRelu ||
                     options.activation == UnitActivation::kRelu6);
  return fits ? std::make_unique<PointwiseKernel>(s, options) : nullptr;
}

}  // namespace trainyard::nn::cpu
