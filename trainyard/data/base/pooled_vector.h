// Vectors whose memory comes from a pool, for short-lived data of each sample such as the pixels of an image. malloc
// would return blocks of a third of a megabyte to the system at once, and the page faults of the next allocation cost a
// tenth of the input's time. resize() does not initialise elements.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

// Allocate memory that is not initialised, aligned to 64 bytes, and return it to the pool. Throws kNoSpace
// (core/memory/block_cache.h). Any thread.
void* take_pooled_memory(size_t bytes);
void return_pooled_memory(void* memory, size_t bytes) noexcept;

template <typename T>
struct PooledAllocator {
  static_assert(std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>);
  using value_type = T;  // NOLINT(readability-identifier-naming): the standard's name

  PooledAllocator() = default;
  template <typename U>
  PooledAllocator(const PooledAllocator<U>&) {}  // NOLINT(google-explicit-constructor): allocators convert

  T* allocate(size_t count) { return static_cast<T*>(take_pooled_memory(count * sizeof(T))); }
  void deallocate(T* memory, size_t count) noexcept { return_pooled_memory(memory, count * sizeof(T)); }
  template <typename U>
  void construct(U*) noexcept {}
  template <typename U, typename... Values>
  void construct(U* place, Values&&... values) {
    ::new (static_cast<void*>(place)) U(static_cast<Values&&>(values)...);
  }
  bool operator==(const PooledAllocator&) const = default;
};

template <typename T>
using PooledVector = std::vector<T, PooledAllocator<T>>;

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
