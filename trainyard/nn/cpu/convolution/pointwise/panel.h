// The common part of this folder's sources. Follows the rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Weights are packed in panels of so many blocks of output channels, of which the last may have fewer:
// [panel][input channel][block][lane].
constexpr int64_t kPanelBlocks = 2;

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
