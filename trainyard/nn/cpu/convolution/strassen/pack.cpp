// Weights of 1x1 windows in float, of which a training packs new ones at each step.
#include <omp.h>

#include "trainyard/nn/cpu/convolution/strassen/algorithm.h"
#include "trainyard/nn/cpu/convolution/strassen/arguments.h"
#include "trainyard/nn/cpu/layout/transpose.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Adds factor * the plain weights [k, k + kLanes) of the outputs [out, out + kLanes): a row is an output, or k.
[[gnu::always_inline]] inline void add_square(const StrassenPack& a, int64_t k, int64_t out, int8_t factor,
                                              Floats (&rows)[kLanes]) {
  const int64_t stride = a.transposed ? a.out_channels : a.in_channels;
  const float* const from = a.plain + (a.transposed ? k * stride + out : out * stride + k);
  const Floats sign = fill(factor);
#pragma GCC unroll 16
  for (int64_t row = 0; row < kLanes; ++row) rows[row] = multiply_add(load(from + row * stride), sign, rows[row]);
}

}  // namespace

void strassen_pack(const StrassenPack& a) {
  constexpr int kCuts = StrassenTable::kCuts, kProducts = StrassenTable::kProducts;
  const int64_t depth = a.in_channels / kCuts, outputs = a.out_channels / kCuts;
  const int64_t panels = (outputs / kLanes + kStrassenPanelBlocks - 1) / kStrassenPanelBlocks;
#pragma omp parallel for schedule(static)
  for (int64_t task = 0; task < panels * kProducts; ++task) {
    const int64_t first = task / kProducts * kStrassenPanelBlocks * kLanes, product = task % kProducts;
    const int64_t width = smaller(kStrassenPanelBlocks * kLanes, outputs - first);
    float* const to = a.packed + (first * kProducts + product * width) * depth;
    for (int64_t k = 0; k < depth; k += kLanes) {
      for (int64_t lane = 0; lane < width; lane += kLanes) {
        Floats rows[kLanes] = {};
        for (int part = 0; part < StrassenTable::kParts; ++part) {
          const int8_t factor = kStrassenTable.right[product][part];
          if (factor == 0) continue;
          add_square(a, part / kCuts * depth + k, part % kCuts * outputs + first + lane, factor, rows);
        }
        if (!a.transposed) transpose(rows);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i) store(to + (k + i) * width + lane, rows[i]);
      }
    }
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
