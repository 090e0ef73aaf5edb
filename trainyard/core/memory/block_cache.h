// Keeps freed memory blocks and reuses them. core/memory/cpu_allocator.h allocates LibTorch's tensors from it. A
// training step asks for the same sizes again and again, so nearly every request is served from the cache.
//
// Sizes are rounded up to classes, eight to each doubling (steps of 64 bytes up to 512), so that at most an eighth is
// wasted and a freed block serves every later request of its class. Blocks of 2 MiB and more are mappings of their own
// that begin at a multiple of 2 MiB and ask for huge pages; smaller ones come from malloc.
//
// If all mappings began alike, the same element of every tensor would fall into the same sets of the caches, and a loop
// over many tensors would evict itself. So the data of the n-th mapping begins (n mod 16) times 4,352 bytes further in:
// another page, and four lines further within it. Data is always aligned to 64 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "trainyard/core/memory/cpu_allocator.h"

namespace trainyard::core {

// Where blocks come from. Tests pass a source that runs out of memory.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Returns memory that is aligned to 64 bytes, or nullptr when there is none. With `huge` it is aligned to 2 MiB and
  // full of zeros.
  virtual void* take(size_t bytes, bool huge) = 0;
  virtual void release(void* memory, size_t bytes, bool huge) = 0;
};

// Returns the source that uses malloc and mmap. It lives as long as the program.
MemorySource& system_memory();

// Thread-safe.
class BlockCache {
 public:
  // `limit_bytes` limits what is held; 0 means no limit.
  explicit BlockCache(uint64_t limit_bytes, MemorySource& source = system_memory());
  ~BlockCache();  // releases the cached blocks; no block may be in use
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // Returns memory that is not initialised, aligned to 64 bytes. When the limit or the source refuses, releases all
  // cached blocks and tries once more, then throws kNoSpace with the bytes asked for, used, held and free.
  void* allocate(size_t bytes);
  // Returns memory full of zeros. A large new block touches no page: the system provides each page at its first use,
  // near the thread that uses it.
  void* allocate_zeroed(size_t bytes);
  // Frees a block, which stays cached. Any thread may call it; nullptr does nothing.
  void free(void* data) noexcept;

  // Releases the cached blocks to the source. Returns their bytes.
  uint64_t trim();

  CpuAllocatorStatistics statistics() const;
  void set_limit(uint64_t limit_bytes);

  // Returns how many bytes a request of `bytes` occupies.
  static size_t capacity(size_t bytes);

 private:
  struct Block;
  static constexpr int kClasses = 320;  // up to 2^48 bytes

  struct Taken {
    Block* block;
    bool zeroed;
  };
  Taken take(size_t bytes);
  Block* take_cached(int size_class);
  Block* take_new(int size_class);
  [[noreturn]] void throw_no_space(size_t bytes) const;

  MemorySource& source_;
  mutable std::mutex mutex_;
  std::array<Block*, kClasses> cached_{};  // most recently freed first: its lines may still be in the processor's cache
  CpuAllocatorStatistics statistics_;
  uint64_t mappings_ = 0;
};

}  // namespace trainyard::core
