// Numbers that scripts of tools/golden compute, too, from a name and an index: drawn.py there.
#pragma once

#include <cstdint>

namespace trainyard::core {

// Returns a number in [-1, 1), exact in float; `identity` is stable_hash() of a name. SplitMix64's finaliser: Steele,
// Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
inline double draw(uint64_t identity, int64_t index) {
  uint64_t z = identity + static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  z ^= z >> 31;
  return static_cast<double>(z >> 40) / (1 << 23) - 1;
}

}  // namespace trainyard::core
