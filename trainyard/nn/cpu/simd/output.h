// Writes whole maps. Stores of a map that is too large for the caches bypass them: otherwise each of its lines would be
// read from memory before it is written. Follows the rules of compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/cache.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

template <typename T>
class Output {
 public:
  // `in_cache` says that each line has just been read, because the map is an input, too.
  Output(void* map, const MapShape& shape, bool in_cache)
      : map_(static_cast<T*>(map)), streams_(!in_cache && goes_past_caches<T>(shape, map)) {}

  [[gnu::always_inline]] void put(int64_t at, Floats value) const {
    streams_ ? stream(map_ + at, value) : store(map_ + at, value);
  }
  [[gnu::always_inline]] void put_or_add(int64_t at, Floats value, bool accumulate) const {
    accumulate ? store(map_ + at, load(map_ + at) + value) : put(at, value);
  }

 private:
  T* map_;
  bool streams_;
};

// Runs work(item) for items 0 to count - 1 on the team, and lets every thread see what was streamed.
template <typename Work>
inline void for_each(int64_t count, const Work& work) {
#pragma omp parallel
  {
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < count; ++i) work(i);
    _mm_sfence();
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
