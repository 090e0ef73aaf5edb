#include "trainyard/nn/cpu/convolution/grouped/grouped_convolution.h"

#include <algorithm>

#include <omp.h>

#include "trainyard/nn/cpu/convolution/grouped/blocked_groups.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

bool fits(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after) {
  return (out - 1) * stride + dilation * (kernel - 1) + 1 == in + before + after;
}

GroupedConvolution task_of(const ConvolutionShape& s) {
  const int64_t block = channel_block();
  GroupedConvolution a{.input_shape = {s.batch, s.in_channels, s.in_height, s.in_width, block},
                       .output_shape = {s.batch, s.out_channels, s.out_height, s.out_width, block},
                       .dtype = s.dtype,
                       .lanes = fills_lanes(s) ? s.in_channels / s.groups : block,
                       .group_in = s.in_channels / s.groups,
                       .group_out = s.out_channels / s.groups,
                       .window = {s.kernel_height, s.kernel_width, s.stride_height, s.stride_width, s.top, s.left},
                       .dilation_height = s.dilation_height,
                       .dilation_width = s.dilation_width,
                       .threads = omp_get_max_threads()};
  for (int64_t b = 0; b < a.output_shape.blocks(); ++b) a.input_blocks = std::max(a.input_blocks, a.inputs_of(b).count);
  for (int64_t b = 0; b < a.input_shape.blocks(); ++b)
    a.output_blocks = std::max(a.output_blocks, a.outputs_of(b).count);
  return a;
}

// Calls use(place in the packed weights, place in the plain ones or -1) for each weight. Packed weights are
// [block][other][window][i][lane], where `other` counts from the first block of the other side that reached(block)
// returns. window_of(channel of `block`, channel of the other side) is plain_window(). Threads share the blocks.
template <typename Reached, typename WindowOf, typename Use>
void each_weight(const GroupedConvolution& a, int64_t blocks, int64_t others, const Reached& reached,
                 const WindowOf& window_of, bool lane_is_other, const Use& use) {
  const int64_t block = a.input_shape.block, pixels = a.window_pixels();
#pragma omp parallel for schedule(static)
  for (int64_t b = 0; b < blocks; ++b) {
    const GroupedConvolution::Blocks range = reached(b);
    for (int64_t other = 0; other < others; ++other) {
      for (int64_t i = 0; i < a.lanes; ++i) {
        for (int64_t lane = 0; lane < block; ++lane) {
          // The i-th lane of the group that `lane` belongs to.
          const int64_t fellow = lane / a.lanes * a.lanes + i;
          const int64_t own = b * block + (lane_is_other ? fellow : lane);
          const int64_t far = (range.first + other) * block + (lane_is_other ? lane : fellow);
          const int64_t window = other < range.count ? window_of(own, far) : -1;
          const int64_t begin = (b * others + other) * pixels;
          for (int64_t pixel = 0; pixel < pixels; ++pixel) {
            use(((begin + pixel) * a.lanes + i) * block + lane, window < 0 ? -1 : window * pixels + pixel);
          }
        }
      }
    }
  }
}

class LaneKernel : public ConvolutionKernel {
 public:
  LaneKernel(const ConvolutionShape& shape, const Options& options)
      : shape_(shape), options_(options), task_(task_of(shape)) {}

  int64_t weights_bytes() const override {
    const bool data = options_.direction == ConvolutionDirection::kBackwardData;
    return (data ? task_.transposed_weights() : task_.weights()) * int64_t{sizeof(float)};
  }
  // Has room for a bias as long as the map's padded channels.
  int64_t scratch_bytes() const override {
    const bool weights = options_.direction == ConvolutionDirection::kBackwardWeights;
    return bias_bytes() + (weights ? GroupedConvolutionBackwardWeights{task_}.scratch_bytes() : task_.scratch_bytes());
  }
  const char* implementation() const override { return "lanes"; }
  bool mixes_groups() const override { return shape_.groups > 1 && !fills_lanes(shape_); }

  void pack(const float* plain, void* packed) const override {
    auto* const to = static_cast<float*>(packed);
    const auto use = [&](int64_t place, int64_t from) { to[place] = from < 0 ? 0 : plain[from]; };
    if (options_.direction == ConvolutionDirection::kForward) {
      each_weight(
          task_, task_.output_shape.blocks(), task_.input_blocks, [&](int64_t b) { return task_.inputs_of(b); },
          [&](int64_t out, int64_t in) { return plain_window(shape_, out, in); }, false, use);
    } else {
      each_weight(
          task_, task_.input_shape.blocks(), task_.output_blocks, [&](int64_t b) { return task_.outputs_of(b); },
          [&](int64_t in, int64_t out) { return plain_window(shape_, out, in); }, false, use);
    }
  }
  void unpack(const void* packed, float* plain) const override {
    const auto* const from = static_cast<const float*>(packed);
    each_weight(
        task_, task_.output_shape.blocks(), task_.input_blocks, [&](int64_t b) { return task_.inputs_of(b); },
        [&](int64_t out, int64_t in) { return plain_window(shape_, out, in); }, true,
        [&](int64_t place, int64_t to) {
          if (to >= 0) plain[to] = from[place];
        });
  }

  void forward(const void* source, const void* weights, const float* bias, void* output, void* scratch) const override {
    GroupedConvolutionForward a{with(scratch)};
    a.input = source;
    a.forward_weights = static_cast<const float*>(weights);
    if (bias != nullptr) {
      auto* const padded = static_cast<float*>(scratch);
      std::copy_n(bias, shape_.out_channels, padded);
      std::fill(padded + shape_.out_channels, padded + task_.output_shape.padded_channels(), 0.0F);
      a.bias = padded;
    }
    a.sum = options_.sum;
    a.activation = options_.activation;
    a.output = output;
    grouped_convolution_forward(a);
  }
  void backward_data(const void* output_gradient, const void* weights, void* source_gradient,
                     void* scratch) const override {
    GroupedConvolutionBackwardData a{with(scratch)};
    a.gradient = output_gradient;
    a.backward_weights = static_cast<const float*>(weights);
    a.input_gradient = source_gradient;
    grouped_convolution_backward_data(a);
  }
  void backward_weights(const void* source, const void* output_gradient, void* weights_gradient, float* bias_gradient,
                        void* scratch) const override {
    GroupedConvolutionBackwardWeights a{with(scratch)};
    a.input = source;
    a.gradient = output_gradient;
    a.weights_gradient = static_cast<float*>(weights_gradient);
    if (bias_gradient != nullptr) a.bias_gradient = static_cast<float*>(scratch);
    grouped_convolution_backward_weights(a);
    if (bias_gradient != nullptr) std::copy_n(a.bias_gradient, shape_.out_channels, bias_gradient);
  }

 private:
  int64_t bias_bytes() const { return shape_.bias ? task_.output_shape.padded_channels() * int64_t{sizeof(float)} : 0; }
  GroupedConvolution with(void* scratch) const {
    GroupedConvolution a = task_;
    a.scratch = static_cast<char*>(scratch) + bias_bytes();
    return a;
  }

  ConvolutionShape shape_;
  Options options_;
  GroupedConvolution task_;
};

}  // namespace

bool fills_lanes(const ConvolutionShape& s) {
  const int64_t in = s.in_channels / s.groups, block = channel_block();
  return in == s.out_channels / s.groups && in < block && block % in == 0;
}

std::unique_ptr<ConvolutionKernel> make_grouped_convolution(const ConvolutionShape& s,
                                                            const ConvolutionKernel::Options& options) {
  if (s.plain_input || options.algorithm != ConvolutionAlgorithm::kDirect) return nullptr;
  if (options.activation != UnitActivation::kNone && options.activation != UnitActivation::kRelu) return nullptr;
  if (!fits(s.in_height, s.out_height, s.kernel_height, s.stride_height, s.dilation_height, s.top, s.bottom) ||
      !fits(s.in_width, s.out_width, s.kernel_width, s.stride_width, s.dilation_width, s.left, s.right)) {
    return nullptr;
  }
  return std::make_unique<LaneKernel>(s, options);
}

}  // namespace trainyard::nn::cpu
