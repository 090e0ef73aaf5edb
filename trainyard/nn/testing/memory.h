// Memory of the kernels' benchmarks. Kept from one run to the next: allocating gigabytes again takes longer than the
// measurements.
#pragma once

#include <cstring>
#include <vector>

#include "trainyard/core/memory/block_cache.h"

namespace trainyard::nn::cpu {

class BenchMemory {
 public:
  BenchMemory() = default;
  ~BenchMemory() {
    for (void* block : blocks_) cache().free(block);
  }
  BenchMemory(const BenchMemory&) = delete;
  BenchMemory& operator=(const BenchMemory&) = delete;

  // Zeros, on a cache line, until this object ends.
  void* zeros(int64_t bytes) {
    blocks_.push_back(cache().allocate(static_cast<size_t>(bytes)));
    return std::memset(blocks_.back(), 0, static_cast<size_t>(bytes));
  }

 private:
  static core::BlockCache& cache() {
    static core::BlockCache cache(0);
    return cache;
  }
  std::vector<void*> blocks_;
};

}  // namespace trainyard::nn::cpu
