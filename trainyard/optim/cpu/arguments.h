// What the CPU's loops over parameters are told. No LibTorch here, and no inline function: see kernels.h.
#pragma once

#include <cstdint>

#include "trainyard/optim/formulas/formula_list.h"

namespace trainyard::optim::cpu {

// Elements of one parameter: `count` from the first that each pointer names. Blocks never overlap.
template <typename T>
struct Part {
  T* values = nullptr;
  T* gradients = nullptr;  // complete_part() changes them
  T* slots[kMostSlots] = {};
  int64_t count = 0;
  // g = clip(gradient * inverse_loss_scale + l2_rate * w + l1_rate * sign(w)); clip: infinity for none
  T inverse_loss_scale = 1, l2_rate = 0, l1_rate = 0, clip = 0;
  T learning_rate = 0;
  T keep = 1;  // times w before the update: 1 - lr * decoupled decay. Formulas that are scaled by norms do not read it.
  T decay = 0;  // what formulas that are scaled by norms add themselves
};

// Sums of squares of the weights, and of what the formula measures beside them.
struct Squares {
  double weights = 0, measured = 0;
};

}  // namespace trainyard::optim::cpu
