// The formula of sgd (optimizers/sgd.cpp).
#pragma once

#include "trainyard/optim/formulas/formula.h"

namespace trainyard::optim {

// w -= lr * g
struct SgdFormula {
  static constexpr size_t kSlots = 0;
  template <typename T>
  TRAINYARD_FORMULA T operator()(T gradient, T weight, T learning_rate, T* /*slots*/) const {
    return weight - learning_rate * gradient;
  }
};

#define TRAINYARD_FORMULAS_SGD(X) X(SgdFormula)

}  // namespace trainyard::optim
