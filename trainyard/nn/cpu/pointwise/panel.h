// What the sources of this folder share. Follows the rules of nn/cpu/kernels/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/kernels/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Weights are packed in panels of so many blocks of output channels, of which the last may have fewer:
// [panel][input channel][block][lane].
constexpr int64_t kPanelBlocks = 2;

// Returns the first `count` elements at `from`, and zero in the lanes behind them.
[[gnu::always_inline]] inline Floats load_first(const float* from, int64_t count) {
  float lanes[kLanes] = {};
  for (int64_t c = 0; c < smaller(count, kLanes); ++c) lanes[c] = from[c];
  return load(lanes);
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
