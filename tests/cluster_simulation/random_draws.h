// The random numbers of a seed: every decision of a simulation is drawn from one of these.
#pragma once

#include <cstdint>

namespace trainyard::cluster_simulation {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class RandomDraws {
 public:
  explicit RandomDraws(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Returns a number from 0 to count - 1; count is at least 1.
  uint64_t below(uint64_t count) { return next() % count; }
  // Returns a number from `first` to `last`.
  int64_t between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(below(static_cast<uint64_t>(last - first) + 1));
  }
  // Returns true with this probability.
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }

 private:
  uint64_t state_;
};

}  // namespace trainyard::cluster_simulation
