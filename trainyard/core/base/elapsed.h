#pragma once

#include <chrono>

namespace trainyard::core {

// Returns the seconds from `begin` to `end`.
inline double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Returns the seconds that have passed since `begin`.
inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return seconds_between(begin, std::chrono::steady_clock::now());
}

// Returns the seconds of the steady clock: for clocks that tests replace. Only differences of them mean anything.
inline double steady_seconds() {
  return seconds_since({});
}

}  // namespace trainyard::core
