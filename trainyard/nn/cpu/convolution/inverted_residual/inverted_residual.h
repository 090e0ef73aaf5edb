// Inverted residual blocks at once (arguments.h): which part each thread computes, the packing of weights, and the
// choice of the kernel by isa().
#pragma once

#include <cstdint>

#include "trainyard/nn/cpu/convolution/inverted_residual/arguments.h"

namespace trainyard::nn::cpu {

// Returns whether there is a kernel for maps of this type on this processor. With AVX2 there is none: its 16 registers
// hold too few sums, and mobilenet_v2 took 1.28 times as long as layer by layer (one core of a Zen 5).
bool has_inverted_residual(DataType dtype);

// Divides the work among `threads`.
InvertedResidualPlan plan_inverted_residual(const InvertedResidualShape& shape, DataType dtype, int64_t threads);

// Return the elements of packed weights: of a 1x1 convolution, whose type is that of the maps, and of the depthwise
// one, which are float.
int64_t pointwise_elements(int64_t in_channels, int64_t out_channels);
int64_t depthwise_elements(int64_t channels);

// Pack weights from [out_channels][in_channels] and [channels][3][3]. Pad lanes are zero.
void pack_pointwise(const float* plain, int64_t in_channels, int64_t out_channels, DataType dtype, void* packed);
void pack_depthwise(const float* plain, int64_t channels, float* packed);

// Computes the block; scratch has shared_bytes and thread_bytes for each of the plan's threads.
void inverted_residual(const InvertedResidualForward& a, DataType dtype);

}  // namespace trainyard::nn::cpu
