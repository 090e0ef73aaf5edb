// Numbers for tests that take any optimizer.
#pragma once

#include <string>

#include "trainyard/optim/optimizers/formula_optimizer.h"

namespace trainyard::optim {

// Returns those of `all` that the optimizer of this name has.
inline OptimizerNumbers numbers_of(const std::string& optimizer, const OptimizerNumbers& all) {
  OptimizerNumbers own;
  for (const OptimizerNumber& number : optimizer_formulas().get(optimizer).numbers) {
    if (const auto found = all.find(number.name); found != all.end()) own.insert(*found);
  }
  return own;
}

}  // namespace trainyard::optim
