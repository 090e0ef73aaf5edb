// Replaces data/image/pooled_vector.cpp in fuzz targets: each image has memory of exactly its size, so that sanitizers
// see what is read or written behind it, and what is read before it was written.
#include <new>

#include "trainyard/data/image/image.h"

namespace trainyard::data {

constexpr std::align_val_t kAlignment{64};

void* take_pooled_memory(size_t bytes) {
  return ::operator new(bytes, kAlignment);
}

void return_pooled_memory(void* memory, size_t) noexcept {
  ::operator delete(memory, kAlignment);
}

}  // namespace trainyard::data
