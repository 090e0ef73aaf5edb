// The parameters that tests of variable updates train.
#pragma once

#include <cstdint>

#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::parallel {

// Declares a weight of `shape`, a bias and a statistic for each replica, and allocates them.
inline void declare_small_layer(VariableUpdate& update, int replicas, const nn::Shape& shape) {
  for (int r = 0; r < replicas; ++r) {
    update.parameters(r).declare({.name = "fc.weight", .shape = shape, .init = nn::Initializer::normal(1.0)});
    update.parameters(r).declare({.name = "fc.bias", .shape = {5}, .init = nn::Initializer::normal(1.0)});
    update.parameters(r).declare_buffer({.name = "bn.running_mean", .shape = {5}, .init = nn::Initializer::zeros()});
  }
  update.allocate();
}

}  // namespace trainyard::parallel
