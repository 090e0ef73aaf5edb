// What a convolution does to its sums before it stores them: [relu] (sums (+ bias) (+ the output's old values)).
// Follows the rules of nn/cpu/simd/compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Returns what is stored of `value`, which has the bias already, at `old`. Members `add` and `relu` of the kernel's
// arguments say what is done.
template <typename Arguments, typename Element>
[[gnu::always_inline]] inline Floats epilogue(const Arguments& a, Floats value, const Element* old) {
  if (a.add) value += load(old);
  if (a.relu) value = at_least(0, value);  // NaN stays
  return value;
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
