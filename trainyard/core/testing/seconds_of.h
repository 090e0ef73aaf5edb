// How long work takes, for tests and benchmarks.
#pragma once

#include <chrono>

#include "trainyard/core/base/elapsed.h"

namespace trainyard::core {

// Returns the seconds that a call of `work` takes.
template <typename Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return seconds_since(begin);
}

}  // namespace trainyard::core
