// A parameter set of several small parameters, for tests of optimizers.
#pragma once

#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::optim {

// Odd sizes, so that gaps lie between segments and vector loops have remainders. The bias does not decay.
inline nn::ParameterSet small_set(at::ScalarType dtype = at::kDouble) {
  nn::ParameterSet set({.dtype = dtype});
  for (const char* name : {"body.1.weight", "body.2.weight", "head.weight"}) {
    set.declare({.name = name, .shape = {3, 7}, .init = nn::Initializer::normal(1.0)});
  }
  set.declare({.name = "head.bias", .shape = {5}, .init = nn::Initializer::normal(1.0), .decay = false});
  set.allocate();
  set.initialize(3);
  return set;
}

}  // namespace trainyard::optim
