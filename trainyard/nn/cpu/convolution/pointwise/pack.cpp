#include <omp.h>

#include "trainyard/nn/cpu/convolution/pointwise/arguments.h"
#include "trainyard/nn/cpu/convolution/pointwise/panel.h"
#include "trainyard/nn/cpu/layout/transpose.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

void pointwise_pack(const PointwisePack& a) {
  const int64_t summed_plain = a.backward ? a.out_channels : a.in_channels;
  const int64_t columns_plain = a.backward ? a.in_channels : a.out_channels;
  const int64_t summed = (summed_plain + kLanes - 1) / kLanes, columns = (columns_plain + kLanes - 1) / kLanes;
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < columns; ++block) {
    const int64_t first = block / kPanelBlocks * kPanelBlocks, width = smaller(kPanelBlocks, columns - first) * kLanes;
    float* const to = a.packed + first * kLanes * summed * kLanes + (block - first) * kLanes;
    const int64_t column = block * kLanes, count = smaller(kLanes, columns_plain - column);
    for (int64_t b = 0; b < summed; ++b) {
      const int64_t depth = smaller(kLanes, summed_plain - b * kLanes);
      Floats rows[kLanes];  // of a summed channel
      if (a.backward) {
        const Bits lanes = first_lanes(count);
        for (int64_t k = 0; k < kLanes; ++k) {
          rows[k] = k < depth ? load_lanes(a.plain + (b * kLanes + k) * a.in_channels + column, lanes) : Floats{};
        }
      } else {
        load_planes(a.plain + column * a.in_channels + b * kLanes, a.in_channels, count, depth, rows);
      }
      for (int64_t k = 0; k < kLanes; ++k) store(to + (b * kLanes + k) * width, rows[k]);
    }
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
