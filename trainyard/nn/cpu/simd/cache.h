// The size of the last-level cache, and which maps bypass it when they are written. Follows the rules of
// compiled_for.h.
#pragma once

#include <cpuid.h>

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Returns the bytes of the largest cache that the processor describes; 0 if it describes none.
inline int64_t described_cache_bytes() {
  constexpr unsigned kLeaves[] = {4, 0x8000001D};  // Intel's and AMD's
  int64_t largest = 0;
  for (const unsigned leaf : kLeaves) {
    if (static_cast<unsigned>(__get_cpuid_max(leaf & 0x80000000U, nullptr)) < leaf) continue;
    for (unsigned i = 0; i < 8; ++i) {
      unsigned a = 0, b = 0, c = 0, d = 0;
      __cpuid_count(leaf, i, a, b, c, d);
      if ((a & 31) == 0) break;  // no more caches
      const int64_t ways = (b >> 22) + 1, partitions = ((b >> 12) & 1023) + 1, line = (b & 4095) + 1;
      largest = larger(largest, ways * partitions * line * (static_cast<int64_t>(c) + 1));
    }
  }
  return largest;
}

// Returns the bytes of one last-level cache, or 16 MiB where the processor describes none. sysconf cannot be used: on
// AMD it gives the sum of all last-level caches, ten times what a core has.
inline int64_t last_cache_bytes() {
  static const int64_t bytes = described_cache_bytes();
  return bytes > 0 ? bytes : int64_t{16} << 20;
}

// Returns whether stores of a map should bypass the caches: it is aligned to a vector, and so large that little of it
// would still be cached when it is read. It shares the cache with its source map of the same size, so half of the cache
// is already too large. (A program's share of a very large cache is assumed to be 64 MiB.) Not for a map that is an
// input, too: its lines are already in the cache.
template <typename T>
inline bool goes_past_caches(const MapShape& shape, const void* map) {
  return shape.elements() * static_cast<int64_t>(sizeof(T)) > smaller(last_cache_bytes() / 2, int64_t{64} << 20) &&
         reinterpret_cast<uintptr_t>(map) % (kLanes * sizeof(T)) == 0;
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
