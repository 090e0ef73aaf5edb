// Parameters for tests of device kernels: segments that end within a pack, and one of several parts.
#pragma once

#include <cstdint>

#include "trainyard/nn/execution/parameter_set.h"

namespace trainyard::optim {

// Declares, allocates and initializes three parameters, the last one of `last` elements.
inline nn::ParameterSet make_device_set(const nn::ParameterSetOptions& options, int64_t last) {
  nn::ParameterSet set(options);
  set.declare({.name = "a.weight", .shape = {3, 11}, .init = nn::Initializer::normal(1.0)});
  set.declare({.name = "a.bias", .shape = {7}, .init = nn::Initializer::normal(1.0), .decay = false});
  set.declare({.name = "b.weight", .shape = {last}, .init = nn::Initializer::normal(1.0)});
  set.allocate();
  set.initialize(17);
  return set;
}

}  // namespace trainyard::optim
