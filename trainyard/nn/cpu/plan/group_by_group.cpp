#include "trainyard/nn/cpu/plan/group_by_group.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

// A map of all channels, and one of the channels of a group.
class Side {
 public:
  Side(const ConvolutionShape& s, int64_t channels, int64_t height, int64_t width)
      : dtype_(s.dtype),
        all_{s.batch, channels, height, width, channel_block()},
        one_{s.batch, channels / s.groups, height, width, channel_block()},
        memory_(byte_memory(one_.elements() * size_of(s.dtype))) {}

  void* group() const { return memory_.data_ptr(); }
  // Copies the channels of group `g` from, or to, the map of all of them.
  void take(const void* map, int64_t g) const {
    copy_channels({.source_shape = all_,
                   .target_shape = one_,
                   .dtype = dtype_,
                   .from = g * one_.channels,
                   .count = one_.channels,
                   .source = map,
                   .target = group(),
                   .clear_rest = true});
  }
  // `clear`: all other channels become zero.
  void put(void* map, int64_t g, bool clear) const {
    copy_channels({.source_shape = one_,
                   .target_shape = all_,
                   .dtype = dtype_,
                   .to = g * one_.channels,
                   .count = one_.channels,
                   .source = group(),
                   .target = map,
                   .clear_rest = clear});
  }

 private:
  DataType dtype_;
  MapShape all_, one_;
  at::Tensor memory_;
};

// The convolution of one group, and what it needs.
struct Group {
  Group(const ConvolutionShape& s, ConvolutionDirection direction, bool sum)
      : source(s, s.in_channels, s.in_height, s.in_width), output(s, s.out_channels, s.out_height, s.out_width) {
    ConvolutionShape shape = s;
    shape.groups = 1;
    shape.in_channels /= s.groups;
    shape.out_channels /= s.groups;
    kernel = ConvolutionKernel::make(shape, {.direction = direction, .sum = sum, .exact = true});
    if (kernel == nullptr) {
      throw core::Error(core::ErrorCode::kInternal, {.problem = "no kernel for one group of a convolution"});
    }
    weights = shape.out_channels * shape.in_channels * shape.kernel_height * shape.kernel_width;
    packed = byte_memory(kernel->weights_bytes());
    scratch = byte_memory(kernel->scratch_bytes());
  }

  Side source, output;
  std::unique_ptr<ConvolutionKernel> kernel;
  int64_t weights = 0;  // of a group
  at::Tensor packed, scratch;
};

}  // namespace

at::Tensor byte_memory(int64_t count) {
  return at::empty({std::max<int64_t>(count, 1)}, at::kByte);
}

void convolve_groups(const ConvolutionShape& shape, bool sum, const float* weight, const float* bias,
                     const void* source, void* output) {
  const Group group(shape, ConvolutionDirection::kForward, sum);
  for (int64_t g = 0; g < shape.groups; ++g) {
    group.source.take(source, g);
    if (sum) group.output.take(output, g);
    group.kernel->pack(weight + g * group.weights, group.packed.data_ptr());
    group.kernel->forward(group.source.group(), group.packed.data_ptr(),
                          bias == nullptr ? nullptr : bias + g * (shape.out_channels / shape.groups),
                          group.output.group(), group.scratch.data_ptr());
    group.output.put(output, g, g == 0 && !sum);
  }
}

void convolve_groups_backward_data(const ConvolutionShape& shape, const float* weight, const void* output_gradient,
                                   void* source_gradient) {
  const Group group(shape, ConvolutionDirection::kBackwardData, false);
  for (int64_t g = 0; g < shape.groups; ++g) {
    group.output.take(output_gradient, g);
    group.kernel->pack(weight + g * group.weights, group.packed.data_ptr());
    group.kernel->backward_data(group.output.group(), group.packed.data_ptr(), group.source.group(),
                                group.scratch.data_ptr());
    group.source.put(source_gradient, g, g == 0);
  }
}

}  // namespace trainyard::nn::cpu
