// The formula of optimizers/muon.cpp: the direction of a matrix before it is made orthogonal.
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// v = m * v + g;  d = g + m * v, which takes the place of the weight
struct MuonDirectionFormula {
  static constexpr size_t kSlots = 1;
  double momentum = 0;
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T /*weight*/, T /*learning_rate*/, T* slots) const {
    const T m = static_cast<T>(momentum);
    slots[0] = m * slots[0] + gradient;
    return gradient + m * slots[0];
  }
};

#define TRAINYARD_FORMULAS_MUON(X) X(MuonDirectionFormula)

}  // namespace trainyard::optim
