// The CPU plan's own kernels. Their sources are compiled once for each instruction set (trainyard_kernels in
// CMakeLists.txt), in a namespace named after it; the functions here choose by isa(). So that no code for a higher set
// reaches a lower one through a shared inline function, those sources include only arguments.h and <cstdint>-like
// headers, and keep their helpers in anonymous namespaces.
#pragma once

#include "trainyard/nn/cpu/simd/arguments.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/norm_depthwise_arguments.h"
#include "trainyard/nn/cpu/simd/quantized_bytes_arguments.h"
#include "trainyard/nn/cpu/simd/winograd_fp32_arguments.h"

// X(function, argument)
#define TRAINYARD_CPU_KERNELS(X)                                             \
  X(norm_forward, NormForward)                                               \
  X(norm_moments, NormForward)                                               \
  X(norm_with_moments, NormForward)                                          \
  X(norm_backward, NormBackward)                                             \
  X(norm_gradient_sums, NormBackward)                                        \
  X(norm_backward_with_sums, NormBackward)                                   \
  X(norm_depthwise_forward, NormDepthwiseForward)                            \
  X(norm_depthwise_backward, NormDepthwiseBackward)                          \
  X(scale_shift, ScaleShift)                                                 \
  X(to_blocked, ToBlocked)                                                   \
  X(to_plain, ToPlain)                                                       \
  X(sum_forward, SumForward)                                                 \
  X(activation_forward, ActivationForward)                                   \
  X(activation_backward, ActivationBackward)                                 \
  X(max_pool_forward, MaxPoolForward)                                        \
  X(max_pool_backward, MaxPoolBackward)                                      \
  X(average_pool_forward, AveragePool)                                       \
  X(average_pool_backward, AveragePool)                                      \
  X(global_average_forward, GlobalAverageForward)                            \
  X(global_average_backward, GlobalAverageBackward)                          \
  X(scale_channels_forward, ScaleChannelsForward)                            \
  X(scale_channels_backward, ScaleChannelsBackward)                          \
  X(copy_channels, CopyChannels)                                             \
  X(permute_channels, PermuteChannels)                                       \
  X(grouped_convolution_forward, GroupedConvolutionForward)                  \
  X(grouped_convolution_backward_data, GroupedConvolutionBackwardData)       \
  X(grouped_convolution_backward_weights, GroupedConvolutionBackwardWeights) \
  X(winograd_fp32_forward, WinogradFp32Forward)                              \
  X(winograd_fp32_backward_weights, WinogradFp32BackwardWeights)             \
  X(winograd_fp32_pack, WinogradFp32Pack)                                    \
  X(winograd_fp32_unpack, WinogradFp32Unpack)                                \
  X(linear_forward, LinearForward)                                           \
  X(linear_backward_data, LinearBackwardData)                                \
  X(linear_backward_weights, LinearBackwardWeights)                          \
  X(local_response_forward, LocalResponseForward)                            \
  X(local_response_backward, LocalResponseBackward)                          \
  X(layer_norm_forward, LayerNormForward)                                    \
  X(layer_norm_backward, LayerNormBackward)                                  \
  X(attention_forward, AttentionForward)                                     \
  X(attention_backward, AttentionBackward)                                   \
  X(scale_samples, ScaleSamples)                                             \
  TRAINYARD_CPU_BYTE_KERNELS(X)

namespace trainyard::nn::cpu {

#define TRAINYARD_DECLARE(function, argument) void function(const argument& a);
namespace avx2 {
TRAINYARD_CPU_KERNELS(TRAINYARD_DECLARE)
}
namespace avx512 {
TRAINYARD_CPU_KERNELS(TRAINYARD_DECLARE)
}
#undef TRAINYARD_DECLARE

#define TRAINYARD_CHOOSE(function, argument)                       \
  inline void function(const argument& a) {                        \
    isa() == Isa::kAvx2 ? avx2::function(a) : avx512::function(a); \
  }
TRAINYARD_CPU_KERNELS(TRAINYARD_CHOOSE)
#undef TRAINYARD_CHOOSE

}  // namespace trainyard::nn::cpu
