// The kernels of arguments.h. They are compiled for AVX2 only: with AVX-512 oneDNN's leave nothing to gain
// (docs/benchmarks.md). Callers ask isa() first.
#pragma once

#include "trainyard/nn/cpu/pointwise/arguments.h"

namespace trainyard::nn::cpu::avx2 {

void pointwise_backward_data(const PointwiseBackwardData& a);
void pointwise_backward_weights(const PointwiseBackwardWeights& a);
void pointwise_pack(const PointwisePack& a);

}  // namespace trainyard::nn::cpu::avx2
