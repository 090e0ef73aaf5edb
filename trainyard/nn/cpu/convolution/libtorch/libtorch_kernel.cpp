#include "trainyard/nn/cpu/convolution/libtorch/libtorch_kernel.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sum.h>
#include <c10/core/MemoryFormat.h>

#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/execution/libtorch_convolution.h"

namespace trainyard::nn::cpu {
namespace {

using Sizes = std::array<int64_t, 4>;  // channels_last in memory, if nothing else is said

int64_t elements(const Sizes& sizes) {
  return sizes[0] * sizes[1] * sizes[2] * sizes[3];
}

at::Tensor view(const void* data, const Sizes& sizes, at::ScalarType type, at::MemoryFormat format) {
  const bool last = format == at::MemoryFormat::ChannelsLast;
  const auto& [n, c, h, w] = sizes;
  const Sizes strides = last ? Sizes{h * w * c, 1, w * c, c} : Sizes{c * h * w, h * w, w, 1};
  return at::from_blob(const_cast<void*>(data),  // NOLINT(cppcoreguidelines-pro-type-const-cast): it is only read
                       sizes, strides, type);
}

at::Tensor channels_last(const void* data, const Sizes& sizes) {
  return view(data, sizes, at::kBFloat16, at::MemoryFormat::ChannelsLast);
}

at::Tensor uninitialized(const Sizes& sizes) {
  return at::empty(sizes, at::TensorOptions(at::kBFloat16).memory_format(at::MemoryFormat::ChannelsLast));
}

// Calls copy(blocked, last, count) for the channels of each pixel and block: a place in the blocked map, the same in
// channels_last, and the channels that the block has there.
template <int64_t kLanes, typename Copy>
void each_block(const Sizes& sizes, const Copy& copy) {
  const int64_t channels = sizes[1], pixels = sizes[2] * sizes[3], blocks = (channels + kLanes - 1) / kLanes;
#pragma omp parallel for schedule(static) collapse(2)
  for (int64_t n = 0; n < sizes[0]; ++n) {
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      for (int64_t block = 0; block < blocks; ++block) {
        copy(((n * blocks + block) * pixels + pixel) * kLanes, (n * pixels + pixel) * channels + block * kLanes,
             std::min(kLanes, channels - block * kLanes));
      }
    }
  }
}

template <int64_t kLanes>
void to_channels_last(const uint16_t* map, const Sizes& sizes, uint16_t* last) {
  each_block<kLanes>(sizes, [&](int64_t from, int64_t to, int64_t count) {
    if (count == kLanes) {
      std::memcpy(last + to, map + from, kLanes * sizeof(uint16_t));
    } else {
      std::copy_n(map + from, count, last + to);
    }
  });
}

template <int64_t kLanes>
void from_channels_last(const uint16_t* last, const Sizes& sizes, uint16_t* map) {
  each_block<kLanes>(sizes, [&](int64_t to, int64_t from, int64_t count) {
    if (count == kLanes) {
      std::memcpy(map + to, last + from, kLanes * sizeof(uint16_t));
    } else {
      std::fill(std::copy_n(last + from, count, map + to), map + to + kLanes, uint16_t{0});  // pad lanes
    }
  });
}

class LibtorchKernel : public ConvolutionKernel {
 public:
  LibtorchKernel(const ConvolutionShape& s, ConvolutionDirection direction)
      : op_{.out_channels = s.out_channels,
            .kernel = Size2d(s.kernel_height, s.kernel_width),
            .stride = Size2d(s.stride_height, s.stride_width),
            .dilation = Size2d(s.dilation_height, s.dilation_width),
            .groups = s.groups},
        padding_{s.top, s.left},
        direction_(direction),
        plain_input_(s.plain_input),
        has_bias_(s.bias),
        source_{s.batch, s.in_channels, s.in_height, s.in_width},
        output_{s.batch, s.out_channels, s.out_height, s.out_width},
        weights_{s.out_channels, s.in_channels / s.groups, s.kernel_height, s.kernel_width} {}

  int64_t weights_bytes() const override { return bytes_of(weights_); }
  int64_t scratch_bytes() const override {
    const int64_t source = plain_input_ ? 0 : bytes_of(source_);
    switch (direction_) {
      case ConvolutionDirection::kForward:
        return source;
      case ConvolutionDirection::kBackwardData:
        return bytes_of(output_);
      case ConvolutionDirection::kBackwardWeights:
        return source + bytes_of(output_);
    }
    return 0;
  }
  const char* implementation() const override { return "libtorch"; }
  bool mixes_groups() const override { return op_.groups > 1; }
  bool multiplies_pairs() const override { return true; }

  void pack(const float* plain, void* packed) const override {
    channels_last(packed, weights_).copy_(view(plain, weights_, at::kFloat, at::MemoryFormat::Contiguous));
  }
  void unpack(const void* packed, float* plain) const override {
    view(plain, weights_, at::kFloat, at::MemoryFormat::Contiguous).copy_(channels_last(packed, weights_));
  }

  void forward(const void* source, const void* weights, const float* bias, void* output, void* scratch) const override {
    at::Tensor bias_in_16;
    if (has_bias_ && bias != nullptr) {
      const Sizes sizes{1, 1, 1, output_[1]};
      bias_in_16 = view(bias, sizes, at::kFloat, at::MemoryFormat::Contiguous).view({-1}).to(at::kBFloat16);
    }
    write_map(
        libtorch_convolution(op_, padding_, read_source(source, scratch), channels_last(weights, weights_), bias_in_16),
        output_, output);
  }
  void backward_data(const void* output_gradient, const void* weights, void* source_gradient,
                     void* scratch) const override {
    // Only the sizes of the source are used.
    write_map(libtorch_convolution_backward(op_, padding_, read_map(output_gradient, output_, scratch),
                                            uninitialized(source_), channels_last(weights, weights_), true, false)
                  .input,
              source_, source_gradient);
  }
  void backward_weights(const void* source, const void* output_gradient, void* weights_gradient, float* bias_gradient,
                        void* scratch) const override {
    const at::Tensor gradient = read_map(output_gradient, output_, scratch);
    auto* const behind = static_cast<std::byte*>(scratch) + bytes_of(output_);
    const ConvolutionGradients gradients = libtorch_convolution_backward(
        op_, padding_, gradient, read_source(source, behind), uninitialized(weights_), false, true);
    channels_last(weights_gradient, weights_).copy_(gradients.weight);
    if (has_bias_ && bias_gradient != nullptr) {
      const at::Tensor sums = at::sum(gradient, {0, 2, 3}, /*keepdim=*/false, at::kFloat);
      std::copy_n(sums.const_data_ptr<float>(), output_[1], bias_gradient);
    }
  }

 private:
  // In whole lines of the cache, so that what lies behind begins at one.
  static int64_t bytes_of(const Sizes& sizes) {
    return (elements(sizes) * size_of(DataType::kBfloat16) + 63) / 64 * 64;
  }

  // Returns a channels_last view of `scratch`, to which it copies the map.
  static at::Tensor read_map(const void* map, const Sizes& sizes, void* scratch) {
    const auto* from = static_cast<const uint16_t*>(map);
    auto* const to = static_cast<uint16_t*>(scratch);
    channel_block() == 16 ? to_channels_last<16>(from, sizes, to) : to_channels_last<8>(from, sizes, to);
    return channels_last(scratch, sizes);
  }
  at::Tensor read_source(const void* source, void* scratch) const {
    return plain_input_ ? view(source, source_, at::kBFloat16, at::MemoryFormat::Contiguous)
                        : read_map(source, source_, scratch);
  }
  static void write_map(const at::Tensor& result, const Sizes& sizes, void* map) {
    const at::Tensor last = result.contiguous(at::MemoryFormat::ChannelsLast);
    const auto* from = static_cast<const uint16_t*>(last.const_data_ptr());
    auto* const to = static_cast<uint16_t*>(map);
    channel_block() == 16 ? from_channels_last<16>(from, sizes, to) : from_channels_last<8>(from, sizes, to);
  }

  const Convolution op_;
  const std::array<int64_t, 2> padding_;
  const ConvolutionDirection direction_;
  const bool plain_input_, has_bias_;
  const Sizes source_, output_, weights_;
};

}  // namespace

std::unique_ptr<ConvolutionKernel> make_libtorch_convolution(const ConvolutionShape& s,
                                                             const ConvolutionKernel::Options& options) {
  const Convolution op{.kernel = Size2d(s.kernel_height, s.kernel_width),
                       .stride = Size2d(s.stride_height, s.stride_width),
                       .groups = s.groups};
  // LibTorch adds the same padding at both ends; what the last window does not reach of the far one may lack. A map
  // that is shorter with it than the window is refused, where one with more padding behind it would be a convolution.
  const auto same_at_both_ends = [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation,
                                    int64_t before) {
    const int64_t beyond_window = in + 2 * before - dilation * (kernel - 1) - 1;
    return before >= 0 && beyond_window >= 0 && beyond_window / stride + 1 == out;
  };
  const bool fits =
      s.dtype == DataType::kBfloat16 && !options.sum && options.activation == UnitActivation::kNone &&
      same_at_both_ends(s.in_height, s.out_height, s.kernel_height, s.stride_height, s.dilation_height, s.top) &&
      same_at_both_ends(s.in_width, s.out_width, s.kernel_width, s.stride_width, s.dilation_width, s.left) &&
      !(s.plain_input && options.direction == ConvolutionDirection::kBackwardData) &&
      libtorch_may_compute(op, s.in_channels, {s.top, s.left});
  return fits ? std::make_unique<LibtorchKernel>(s, options.direction) : nullptr;
}

bool libtorch_by_processor(const ConvolutionShape& shape, bool amx) {
  return amx && shape.dtype == DataType::kBfloat16;
}

}  // namespace trainyard::nn::cpu
