#include "trainyard/nn/cpu/convolution/convolution.h"

#include "trainyard/nn/cpu/convolution/amx/amx_convolution.h"
#include "trainyard/nn/cpu/convolution/grouped/blocked_groups.h"
#include "trainyard/nn/cpu/convolution/grouped/grouped_convolution.h"
#include "trainyard/nn/cpu/convolution/libtorch/libtorch_kernel.h"
#include "trainyard/nn/cpu/convolution/onednn/onednn_convolution.h"
#include "trainyard/nn/cpu/convolution/patches/patch_convolution.h"
#include "trainyard/nn/cpu/convolution/pixel_pairs/pixel_pairs_convolution.h"
#include "trainyard/nn/cpu/convolution/pointwise/pointwise_convolution.h"
#include "trainyard/nn/cpu/convolution/strassen/strassen_convolution.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/winograd_bf16_convolution.h"
#include "trainyard/nn/cpu/convolution/winograd_fp32/winograd_fp32_convolution.h"
#include "trainyard/nn/cpu/simd/isa.h"

namespace trainyard::nn::cpu {
namespace {

// Returns whether blocked layout keeps groups apart: only where each fills whole blocks, or is one channel (depthwise).
bool groups_fit(const ConvolutionShape& s) {
  if (s.groups == 1) return true;
  if (s.groups == s.in_channels && s.groups == s.out_channels) return true;
  return s.in_channels / s.groups % channel_block() == 0 && s.out_channels / s.groups % channel_block() == 0;
}

// Returns how many times as many products as the definition has are computed on whole blocks.
int64_t waste(const ConvolutionShape& s) {
  const BlockedGroups whole = blocked_groups(s, channel_block());
  return whole.count * whole.in * whole.out / (s.out_channels * (s.in_channels / s.groups));
}

// Returns whether oneDNN on whole blocks pays, although it multiplies zeros. Our kernels multiply floats one at a time.
// oneDNN's in 16 bits multiply pairs where the processor can, forward and backward to the input: that makes up for
// twice the products.
bool pays_whole(const ConvolutionShape& s, ConvolutionDirection direction) {
  if (!fills_lanes(s)) return waste(s) < 8;
  return s.dtype == DataType::kBfloat16 && isa() == Isa::kAvx512Bf16 &&
         direction != ConvolutionDirection::kBackwardWeights && waste(s) <= 2;
}

}  // namespace

UnreachedWeights unreached_weights(const ConvolutionShape& s) {
  return {{.in = s.in_height,
           .out = s.out_height,
           .kernel = s.kernel_height,
           .stride = s.stride_height,
           .dilation = s.dilation_height,
           .before = s.top},
          {.in = s.in_width,
           .out = s.out_width,
           .kernel = s.kernel_width,
           .stride = s.stride_width,
           .dilation = s.dilation_width,
           .before = s.left}};
}

bool ConvolutionKernel::is_fusable(UnitActivation activation) {
  switch (activation) {
    case UnitActivation::kNone:
    case UnitActivation::kRelu:
    case UnitActivation::kRelu6:
    case UnitActivation::kSilu:
    case UnitActivation::kHardSwish:
      return true;
    default:
      return false;
  }
}

std::unique_ptr<ConvolutionKernel> ConvolutionKernel::make(const ConvolutionShape& shape, const Options& options) {
  if (options.exact && shape.dtype == DataType::kBfloat16) return make_grouped_convolution(shape, options);
  if (options.algorithm == ConvolutionAlgorithm::kAmx) return make_amx_convolution(shape, options);
  if (options.algorithm == ConvolutionAlgorithm::kWinograd4 || options.algorithm == ConvolutionAlgorithm::kWinograd2) {
    return make_winograd_fp32_convolution(shape, options);
  }
  if (options.algorithm == ConvolutionAlgorithm::kWinograd3) return make_winograd_bf16_convolution(shape, options);
  if (options.algorithm == ConvolutionAlgorithm::kStrassen) return make_strassen_convolution(shape, options);
  if (options.algorithm == ConvolutionAlgorithm::kPointwise) return make_pointwise_convolution(shape, options);
  if (options.algorithm == ConvolutionAlgorithm::kPixelPairs) return make_pixel_pairs_convolution(shape, options);
  if (options.algorithm == ConvolutionAlgorithm::kLibtorch) return make_libtorch_convolution(shape, options);
  if (options.algorithm == ConvolutionAlgorithm::kDirect) {
    if (auto kernel = make_patch_convolution(shape, options)) return kernel;
  }
  if (groups_fit(shape)) {
    if (auto kernel = make_onednn_convolution(shape, options, false)) return kernel;
  }
  if (options.algorithm == ConvolutionAlgorithm::kWinograd) return make_winograd_bf16_convolution(shape, options);
  if (pays_whole(shape, options.direction)) {
    if (auto kernel = make_onednn_convolution(shape, options, true)) return kernel;
  }
  return make_grouped_convolution(shape, options);
}

}  // namespace trainyard::nn::cpu
