// Computes output = activation(input * scale + shift [+ residual]) over a span of a channel block, for norm_forward and
// scale_shift. Defined in scale_shift.cpp.
#pragma once

#include "trainyard/nn/cpu/simd/waves.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {

struct Affine {
  const void* input;
  const void* residual;  // or null
  void* output;
  uint8_t* mask;  // or null; only with kRelu and a residual
  float scale[kLanes], shift[kLanes];
  float inside[kLanes];  // 1 in lanes that hold a channel, else 0
  bool past_caches;
};

using ApplyAffine = void (*)(const Affine& a, const Span& span);
// Returns the loop for these arguments. A mask comes only with kRelu and a residual.
ApplyAffine choose_affine(DataType dtype, UnitActivation activation, bool residual, bool mask);

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
