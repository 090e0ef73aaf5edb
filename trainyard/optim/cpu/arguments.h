// Arguments of the CPU's loops over parameters. No LibTorch here, and no inline function: see kernels.h.
#pragma once

#include <cstdint>

#include "trainyard/optim/formulas/formula_list.h"

namespace trainyard::optim::cpu {

// Elements of one parameter: `count` from each pointer on. Blocks never overlap.
template <typename T>
struct Part {
  T* values = nullptr;
  T* gradients = nullptr;  // complete_part() changes them
  T* slots[kMostSlots] = {};
  int64_t count = 0;
  // g = clip(gradient * inverse_loss_scale + l2_rate * w + l1_rate * sign(w)); infinity does not clip
  T inverse_loss_scale = 1, l2_rate = 0, l1_rate = 0, clip = 0;
  T learning_rate = 0;
  T keep = 1;   // factor of w before the update: 1 - lr * decoupled decay. Not used by formulas that add it themselves.
  T decay = 0;  // weight decay of formulas that are scaled by norms, or take it, and add it themselves
};

// Sums of squares of the weights, and of the vector that the formula measures.
struct Squares {
  double weights = 0, measured = 0;
};

}  // namespace trainyard::optim::cpu
