#include "trainyard/core/memory/block_cache.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include <fmt/core.h>
#include <sys/mman.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/system/system_files.h"

namespace trainyard::core {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kPage = 4096;
constexpr size_t kLargest = size_t{1} << 47;  // the address space of a process
constexpr size_t kStaggers = 16;
constexpr size_t kStaggerStep = kPage + 4 * kAlignment;

size_t rounded_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Classes 0 to 7 are 64, 128, ..., 512 bytes; then eight to each doubling.
int class_of(size_t bytes) {
  if (bytes <= 8 * kAlignment) return static_cast<int>((std::max(bytes, kAlignment) - 1) / kAlignment);
  const int doubling = std::bit_width(bytes - 1) - 1;  // 2^doubling < bytes <= 2^(doubling + 1)
  const size_t step = size_t{1} << (doubling - 3);
  const size_t steps = (bytes - (size_t{1} << doubling) + step - 1) / step;  // 1 to 8
  return 8 * (doubling - 8) + static_cast<int>(steps) - 1;
}

size_t class_capacity(int size_class) {
  if (size_class < 8) return kAlignment * (size_class + 1);
  const int doubling = size_class / 8 + 8;
  return (size_t{1} << doubling) + (size_t{1} << (doubling - 3)) * (size_class % 8 + 1);
}

class SystemMemory : public MemorySource {
 public:
  void* take(size_t bytes, bool huge) override {
    if (!huge) {
      void* memory = nullptr;
      return posix_memalign(&memory, kAlignment, bytes) == 0 ? memory : nullptr;
    }
    // A multiple of 2 MiB lies in the first 2 MiB of a mapping that is longer by as much; what surrounds it goes back.
    const size_t length = rounded_up(bytes, kPage);
    void* mapping = mmap(nullptr, length + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    const auto begin = reinterpret_cast<uintptr_t>(mapping);
    const uintptr_t aligned = rounded_up(begin, kHuge);
    if (aligned != begin) munmap(mapping, aligned - begin);
    void* memory = reinterpret_cast<void*>(aligned);
    const size_t tail = begin + kHuge - aligned;
    if (tail != 0) munmap(static_cast<std::byte*>(memory) + length, tail);
    // Refused by kernels without huge pages, whose memory is as good, only slower.
    madvise(memory, length, MADV_HUGEPAGE);
    return memory;
  }

  void release(void* memory, size_t bytes, bool huge) override {
    if (huge) {
      munmap(memory, rounded_up(bytes, kPage));
    } else {
      std::free(memory);
    }
  }
};

std::string mebibytes(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

MemorySource& system_memory() {
  static auto* memory = new SystemMemory;
  return *memory;
}

// Lies right before the data. It fills a cache line, so that no other data shares a line with ours.
struct alignas(kAlignment) BlockCache::Block {
  Block* next;   // cached: the one freed before
  void* memory;  // as taken from the source
  size_t bytes;  // as taken from the source
  int size_class;
  bool huge;

  void* data() { return this + 1; }
  static Block* of(void* data) { return static_cast<Block*>(data) - 1; }
};

BlockCache::BlockCache(uint64_t limit_bytes, MemorySource& source) : source_(source) {
  statistics_.limit_bytes = limit_bytes;
}

BlockCache::~BlockCache() {
  trim();
}

size_t BlockCache::capacity(size_t bytes) {
  return class_capacity(class_of(bytes));
}

void* BlockCache::allocate(size_t bytes) {
  return take(bytes).block->data();
}

void* BlockCache::allocate_zeroed(size_t bytes) {
  const auto [block, zeroed] = take(bytes);
  if (!zeroed) std::memset(block->data(), 0, bytes);
  return block->data();
}

BlockCache::Taken BlockCache::take(size_t bytes) {
  if (bytes > kLargest) throw_no_space(bytes);
  const int size_class = class_of(bytes);
  if (Block* block = take_cached(size_class)) return {block, false};
  Block* block = take_new(size_class);
  if (block == nullptr) {
    trim();
    block = take_new(size_class);
  }
  if (block == nullptr) throw_no_space(bytes);
  return {block, block->huge};
}

BlockCache::Block* BlockCache::take_cached(int size_class) {
  std::lock_guard lock(mutex_);
  ++statistics_.allocations;
  Block* block = cached_[size_class];
  if (block == nullptr) return nullptr;
  cached_[size_class] = block->next;
  ++statistics_.cache_hits;
  statistics_.used_bytes += block->bytes;
  statistics_.peak_used_bytes = std::max(statistics_.peak_used_bytes, statistics_.used_bytes);
  return block;
}

BlockCache::Block* BlockCache::take_new(int size_class) {
  const size_t data_bytes = class_capacity(size_class);
  const bool huge = data_bytes >= kHuge;
  size_t offset = 0, bytes = 0;
  {
    // Counted before it is taken, so that two threads do not pass the limit together, and taken outside of the lock.
    std::lock_guard lock(mutex_);
    if (huge) offset = mappings_++ % kStaggers * kStaggerStep;
    bytes = offset + sizeof(Block) + data_bytes;
    if (statistics_.limit_bytes != 0 && statistics_.held_bytes + bytes > statistics_.limit_bytes) return nullptr;
    statistics_.held_bytes += bytes;
    statistics_.used_bytes += bytes;
  }
  void* memory = source_.take(bytes, huge);
  std::lock_guard lock(mutex_);
  if (memory == nullptr) {
    statistics_.held_bytes -= bytes;
    statistics_.used_bytes -= bytes;
    return nullptr;
  }
  statistics_.peak_used_bytes = std::max(statistics_.peak_used_bytes, statistics_.used_bytes);
  statistics_.peak_held_bytes = std::max(statistics_.peak_held_bytes, statistics_.held_bytes);
  return new (static_cast<std::byte*>(memory) + offset) Block{nullptr, memory, bytes, size_class, huge};
}

void BlockCache::free(void* data) noexcept {
  if (data == nullptr) return;
  Block* block = Block::of(data);
  std::lock_guard lock(mutex_);
  statistics_.used_bytes -= block->bytes;
  block->next = cached_[block->size_class];
  cached_[block->size_class] = block;
}

uint64_t BlockCache::trim() {
  std::array<Block*, kClasses> blocks{};
  uint64_t freed = 0;
  {
    std::lock_guard lock(mutex_);
    std::swap(blocks, cached_);
    for (const Block* block : blocks) {
      for (; block != nullptr; block = block->next) freed += block->bytes;
    }
  }
  for (Block* block : blocks) {
    while (block != nullptr) {
      Block* next = block->next;
      source_.release(block->memory, block->bytes, block->huge);
      block = next;
    }
  }
  // Only now: a thread that sees room in the limit may take it at once.
  std::lock_guard lock(mutex_);
  statistics_.held_bytes -= freed;
  return freed;
}

CpuAllocatorStatistics BlockCache::statistics() const {
  std::lock_guard lock(mutex_);
  return statistics_;
}

void BlockCache::set_limit(uint64_t limit_bytes) {
  std::lock_guard lock(mutex_);
  statistics_.limit_bytes = limit_bytes;
}

void BlockCache::throw_no_space(size_t bytes) const {
  const CpuAllocatorStatistics now = statistics();
  std::string actual = fmt::format("{} used of {} held", mebibytes(now.used_bytes), mebibytes(now.held_bytes));
  if (now.limit_bytes != 0) actual += fmt::format(", limit {}", mebibytes(now.limit_bytes));
  actual += fmt::format(", {} free on the machine", mebibytes(memory_info_bytes("MemAvailable")));
  throw Error(ErrorCode::kNoSpace,
              {.problem = fmt::format("out of memory for a block of {} bytes ({})", bytes, mebibytes(bytes)),
               .actual = actual,
               .remedy = "use a smaller batch or fewer replicas, or raise the memory limit of the program"});
}

}  // namespace trainyard::core
