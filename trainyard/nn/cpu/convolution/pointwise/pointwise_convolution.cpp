#include "trainyard/nn/cpu/convolution/pointwise/pointwise_convolution.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "trainyard/nn/cpu/convolution/pointwise/pointwise.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd_bf16_convolution.h"

namespace trainyard::nn::cpu {
namespace {

class PointwiseKernel : public ConvolutionKernel {
 public:
  PointwiseKernel(const ConvolutionShape& shape, ConvolutionDirection direction)
      : direction_(direction),
        shape_{.batch = shape.batch,
               .in_channels = in_whole_blocks(shape.in_channels),
               .out_channels = in_whole_blocks(shape.out_channels),
               .pixels = shape.in_height * shape.in_width},
        in_channels_(shape.in_channels),
        out_channels_(shape.out_channels) {
    if (direction == ConvolutionDirection::kBackwardData) std::swap(shape_.in_channels, shape_.out_channels);
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
                    .backward = direction_ == ConvolutionDirection::kBackwardData,
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

  void forward(const void* source, const void* weights, const float* bias, void* output,
               void* /*scratch*/) const override {
    pointwise_forward({.shape = shape_,
                       .input = static_cast<const float*>(source),
                       .weights = static_cast<const float*>(weights),
                       .bias = bias,
                       .bias_count = out_channels_,
                       .output = static_cast<float*>(output)});
  }
  void backward_data(const void* output_gradient, const void* weights, void* source_gradient,
                     void* /*scratch*/) const override {
    pointwise_forward({.shape = shape_,
                       .input = static_cast<const float*>(output_gradient),
                       .weights = static_cast<const float*>(weights),
                       .output = static_cast<float*>(source_gradient)});
  }
  void backward_weights(const void* source, const void* output_gradient, void* weights_gradient, float* bias_gradient,
                        void* /*scratch*/) const override {
    pointwise_backward_weights({.shape = shape_,
                                .input = static_cast<const float*>(source),
                                .output_gradient = static_cast<const float*>(output_gradient),
                                .weights_gradient = static_cast<float*>(weights_gradient),
                                .bias_gradient = bias_gradient,
                                .bias_count = out_channels_});
  }

 private:
  ConvolutionDirection direction_;
  PointwiseShape shape_;  // of the forward; for the gradient of the input with inputs for outputs
  int64_t in_channels_, out_channels_;
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
                    s.out_width == s.in_width && options.activation == UnitActivation::kNone && !options.sum;
  return fits ? std::make_unique<PointwiseKernel>(s, options.direction) : nullptr;
}

}  // namespace trainyard::nn::cpu
