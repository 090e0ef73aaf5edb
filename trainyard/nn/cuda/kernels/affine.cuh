// A ChannelAffine's constants of one group of channels, in registers.
#pragma once

#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {

template <int kVector>
struct AffineConstants {
  float center[kVector], scale[kVector], offset[kVector];

  __device__ AffineConstants(const ChannelAffine& affine, int first) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      center[v] = affine.center == nullptr ? 0.0F : affine.center[first + v];
      scale[v] = affine.scale == nullptr ? 1.0F : affine.scale[first + v];
      offset[v] = affine.offset == nullptr ? 0.0F : affine.offset[first + v];
    }
  }

  __device__ float apply(int v, float x) const {
    return fmaf(x - center[v], scale[v], offset[v]);
  }
};

}  // namespace trainyard::nn::cuda
