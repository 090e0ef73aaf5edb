// Convolutions with 1x1 windows (arguments.h), compiled once for each instruction set, and functions that choose by
// isa(): nn/cpu/simd/kernels.h says why and how.
#pragma once

#include "trainyard/nn/cpu/convolution/pointwise/arguments.h"
#include "trainyard/nn/cpu/simd/isa.h"

// X(function, argument)
#define TRAINYARD_POINTWISE_KERNELS(X)                    \
  X(pointwise_forward, PointwiseForward)                  \
  X(pointwise_backward_weights, PointwiseBackwardWeights) \
  X(pointwise_pack, PointwisePack)

namespace trainyard::nn::cpu {

#define TRAINYARD_DECLARE(function, argument) void function(const argument& a);
namespace avx2 {
TRAINYARD_POINTWISE_KERNELS(TRAINYARD_DECLARE)
}
namespace avx512 {
TRAINYARD_POINTWISE_KERNELS(TRAINYARD_DECLARE)
}
#undef TRAINYARD_DECLARE

#define TRAINYARD_CHOOSE(function, argument)                       \
  inline void function(const argument& a) {                        \
    isa() == Isa::kAvx2 ? avx2::function(a) : avx512::function(a); \
  }
TRAINYARD_POINTWISE_KERNELS(TRAINYARD_CHOOSE)
#undef TRAINYARD_CHOOSE
#undef TRAINYARD_POINTWISE_KERNELS

}  // namespace trainyard::nn::cpu
