#include <omp.h>

#include "trainyard/nn/cpu/kernels/transpose.h"
#include "trainyard/nn/cpu/pointwise/arguments.h"
#include "trainyard/nn/cpu/pointwise/panel.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

void pointwise_pack(const PointwisePack& a) {
  const int64_t outs = (a.out_channels + kLanes - 1) / kLanes, ins = (a.in_channels + kLanes - 1) / kLanes;
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < ins; ++block) {
    const int64_t first = block / kPanelBlocks * kPanelBlocks, width = smaller(kPanelBlocks, ins - first) * kLanes;
    float* const to = a.packed + first * kLanes * outs * kLanes + (block - first) * kLanes;
    const float* const from = a.plain + block * kLanes;
    const Bits lanes = first_lanes(smaller(kLanes, a.in_channels - block * kLanes));
    for (int64_t out = 0; out < outs * kLanes; ++out) {
      const bool inside = out < a.out_channels;
      store(to + out * width, inside ? load_lanes(from + out * a.in_channels, lanes) : Floats{});
    }
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
