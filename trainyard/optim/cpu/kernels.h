// The CPU's loops over parameters. Their source is compiled once for each instruction set, in a namespace named after
// it, and the functions here choose by nn::cpu::isa(). So that no code for a higher set reaches a lower one through a
// shared inline function, that source includes only arguments.h and what it includes.
//
// Each call computes one part on the calling thread, so the bits of a result do not depend on the number of threads.
#pragma once

#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/optim/cpu/arguments.h"

namespace trainyard::optim::cpu {

#define TRAINYARD_DECLARE_UPDATE(Formula)                            \
  void update_part(const Part<float>& part, const Formula& formula); \
  void update_part(const Part<double>& part, const Formula& formula);
#define TRAINYARD_DECLARE_MEASURE(Formula)                               \
  Squares measure_part(const Part<float>& part, const Formula& formula); \
  Squares measure_part(const Part<double>& part, const Formula& formula);
#define TRAINYARD_DECLARE_ALL                                                 \
  TRAINYARD_FORMULAS(TRAINYARD_DECLARE_UPDATE)                                \
  TRAINYARD_FORMULAS(TRAINYARD_DECLARE_MEASURE)                               \
  Squares measure_gradient_part(const Part<float>& part, bool reads_values);  \
  Squares measure_gradient_part(const Part<double>& part, bool reads_values); \
  void complete_part(const Part<float>& part);                                \
  void complete_part(const Part<double>& part);
namespace avx2 {
TRAINYARD_DECLARE_ALL
}
namespace avx512 {
TRAINYARD_DECLARE_ALL
}
#undef TRAINYARD_DECLARE_ALL
#undef TRAINYARD_DECLARE_MEASURE
#undef TRAINYARD_DECLARE_UPDATE

// Changes the values and the slots of a part.
template <typename T, typename Formula>
void update_part(const Part<T>& part, const Formula& formula) {
  nn::cpu::isa() == nn::cpu::Isa::kAvx2 ? avx2::update_part(part, formula) : avx512::update_part(part, formula);
}
// Updates the slots that the formula's measurement uses, and returns the part's sums of squares.
template <typename T, typename Formula>
Squares measure_part(const Part<T>& part, const Formula& formula) {
  return nn::cpu::isa() == nn::cpu::Isa::kAvx2 ? avx2::measure_part(part, formula)
                                               : avx512::measure_part(part, formula);
}
// Returns the sums of squares of a part's weights and of its gradients of the whole loss, without clipping. When
// reads_values is false, uses the gradients of the data's loss, and returns 0 for the weights.
template <typename T>
Squares measure_gradient_part(const Part<T>& part, bool reads_values) {
  return nn::cpu::isa() == nn::cpu::Isa::kAvx2 ? avx2::measure_gradient_part(part, reads_values)
                                               : avx512::measure_gradient_part(part, reads_values);
}
// Adds the regularization to the gradients of a part, without clipping.
template <typename T>
void complete_part(const Part<T>& part) {
  nn::cpu::isa() == nn::cpu::Isa::kAvx2 ? avx2::complete_part(part) : avx512::complete_part(part);
}

}  // namespace trainyard::optim::cpu
