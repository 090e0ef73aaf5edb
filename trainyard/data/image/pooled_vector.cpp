#include <new>

#include "trainyard/core/memory/block_cache.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {
namespace {

// Larger ones go back to the system: an image of 100 megapixels among small ones must not stay in memory.
constexpr size_t kLargestKept = size_t{8} << 20;
constexpr std::align_val_t kAlignment{64};

// Never destroyed: images may outlive main.
core::BlockCache& cache() {
  static auto& blocks = *new core::BlockCache(0);
  return blocks;
}

}  // namespace

void* take_pooled_memory(size_t bytes) {
  return bytes <= kLargestKept ? cache().allocate(bytes) : ::operator new(bytes, kAlignment);
}

void return_pooled_memory(void* memory, size_t bytes) noexcept {
  if (bytes <= kLargestKept) {
    cache().free(memory);
  } else {
    ::operator delete(memory, kAlignment);
  }
}

}  // namespace trainyard::data
