#include "trainyard/core/memory/block_cache.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::core::block_cache_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Counts what is out, and refuses when that would be more than `available`.
class CountedMemory : public MemorySource {
 public:
  void* take(size_t bytes, bool huge) override {
    std::lock_guard lock(mutex_);
    if (out_ + bytes > available) {
      ++refusals;
      return nullptr;
    }
    out_ += bytes;
    return system_memory().take(bytes, huge);
  }
  void release(void* memory, size_t bytes, bool huge) override {
    std::lock_guard lock(mutex_);
    out_ -= bytes;
    system_memory().release(memory, bytes, huge);
  }
  uint64_t out() const { return out_; }

  uint64_t available = ~uint64_t{0};
  int refusals = 0;

 private:
  std::mutex mutex_;
  uint64_t out_ = 0;
};

TEST(BlockCache, CapacityFitsAndWastesAtMostAnEighth) {
  size_t last = 0;
  for (size_t bytes = 1; bytes < 5000; ++bytes) {
    const size_t capacity = BlockCache::capacity(bytes);
    ASSERT_GE(capacity, bytes);
    ASSERT_GE(capacity, last);
    ASSERT_EQ(capacity % 64, 0u);
    ASSERT_LE(capacity, bytes + std::max<size_t>(63, bytes / 8)) << bytes;
    ASSERT_EQ(BlockCache::capacity(capacity), capacity);
    last = capacity;
  }
  RandomStream random(1, "sizes");
  for (int i = 0; i < 10000; ++i) {
    const size_t bytes = 512 + random.below(uint64_t{1} << (10 + random.below(36)));
    const size_t capacity = BlockCache::capacity(bytes);
    ASSERT_GE(capacity, bytes);
    ASSERT_LE(capacity - bytes, bytes / 8) << bytes;
    ASSERT_EQ(BlockCache::capacity(capacity), capacity);
    ASSERT_GT(BlockCache::capacity(capacity + 1), capacity);
  }
  EXPECT_EQ(BlockCache::capacity(0), 64u);
  EXPECT_EQ(BlockCache::capacity(size_t{1} << 40), size_t{1} << 40);
}

TEST(BlockCache, ReusesABlockOfItsClass) {
  CountedMemory memory;
  BlockCache cache(0, memory);
  for (size_t bytes : {size_t{100}, size_t{100'000}, 3 * kMiB, 50 * kMiB}) {
    void* first = cache.allocate(bytes);
    const uint64_t held = cache.statistics().held_bytes;
    cache.free(first);
    EXPECT_EQ(cache.allocate(BlockCache::capacity(bytes)), first);
    EXPECT_EQ(cache.statistics().held_bytes, held);
    cache.free(first);
    void* larger = cache.allocate(BlockCache::capacity(bytes) + 1);
    EXPECT_NE(larger, first);
    cache.free(larger);
  }
  const CpuAllocatorStatistics now = cache.statistics();
  EXPECT_EQ(now.allocations, 12u);
  EXPECT_EQ(now.cache_hits, 4u);
  EXPECT_EQ(now.used_bytes, 0u);
  EXPECT_EQ(now.held_bytes, memory.out());
}

TEST(BlockCache, CountsPeaksAndTrims) {
  CountedMemory memory;
  BlockCache cache(0, memory);
  void* kept = cache.allocate(kMiB);
  const uint64_t kept_bytes = cache.statistics().used_bytes;
  EXPECT_GE(kept_bytes, kMiB);
  EXPECT_LE(kept_bytes, kMiB + 64);
  void* freed = cache.allocate(8 * kMiB);
  cache.free(freed);
  CpuAllocatorStatistics now = cache.statistics();
  EXPECT_EQ(now.used_bytes, kept_bytes);
  EXPECT_GE(now.held_bytes, 9 * kMiB);
  EXPECT_EQ(now.peak_used_bytes, now.held_bytes);
  EXPECT_EQ(now.peak_held_bytes, now.held_bytes);

  EXPECT_EQ(cache.trim(), now.held_bytes - kept_bytes);
  EXPECT_EQ(memory.out(), kept_bytes);
  EXPECT_EQ(cache.statistics().held_bytes, kept_bytes);
  EXPECT_EQ(cache.trim(), 0u);
  EXPECT_GE(cache.statistics().peak_held_bytes, 9 * kMiB);
  cache.free(kept);
}

TEST(BlockCache, BigBlocksAreHugePageAlignedAndStaggered) {
  BlockCache cache(0);
  std::vector<void*> blocks;
  std::set<uintptr_t> offsets, lines_in_page;
  for (int i = 0; i < 16; ++i) {
    blocks.push_back(cache.allocate(2 * kMiB));
    const auto address = reinterpret_cast<uintptr_t>(blocks.back());
    EXPECT_EQ(address % 64, 0u);
    EXPECT_LE(address % (2 * kMiB), 65'344u + 64);  // close behind a multiple of 2 MiB
    offsets.insert(address % (2 * kMiB));
    lines_in_page.insert(address % 4096);
    std::memset(blocks.back(), i, 2 * kMiB);
  }
  EXPECT_EQ(offsets.size(), 16u);
  EXPECT_EQ(lines_in_page.size(), 16u);
  for (void* block : blocks) cache.free(block);
}

bool all_zero(const void* data, size_t bytes) {
  const auto* const begin = static_cast<const unsigned char*>(data);
  return std::all_of(begin, begin + bytes, [](unsigned char byte) { return byte == 0; });
}

TEST(BlockCache, ZeroedBlocksAreZeroNewOrUsedBefore) {
  BlockCache cache(0);
  for (size_t bytes : {size_t{100}, size_t{100'000}, size_t{5} << 20}) {
    for (int turn = 0; turn < 2; ++turn) {
      void* const data = cache.allocate_zeroed(bytes);
      EXPECT_TRUE(all_zero(data, bytes)) << bytes << ", turn " << turn;
      std::memset(data, 0xff, bytes);
      cache.free(data);
    }
  }
}

// A model whose gradients nobody asks for should not hold their memory.
TEST(BlockCache, LargeZeroedBlocksTakeNoMemoryUntilTheyAreUsed) {
  BlockCache cache(0);
  constexpr size_t kBytes = size_t{64} << 20, kPage = 4096;
  void* const data = cache.allocate_zeroed(kBytes);
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kPage) / kPage * kPage;
  std::vector<unsigned char> resident(kBytes / kPage - 1);
  ASSERT_EQ(mincore(reinterpret_cast<void*>(begin), resident.size() * kPage, resident.data()), 0);
  // The first huge page holds the block's header.
  const auto pages = std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return page % 2 != 0; });
  EXPECT_LE(pages, 512);
  cache.free(data);
}

TEST(BlockCache, LimitIsKept) {
  BlockCache cache(10 * kMiB);
  void* six = cache.allocate(6 * kMiB);
  try {
    cache.allocate(5 * kMiB);
    ADD_FAILURE() << "the limit was passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoSpace);
    const std::string text = error.what();
    EXPECT_EQ(text.find("out of memory for a block of 5242880 bytes (5.0 MiB): got 6.0 MiB used of 6.0 MiB held, "
                        "limit 10.0 MiB, "),
              0u)
        << text;
    EXPECT_NE(text.find(" free on the machine; use a smaller batch"), std::string::npos) << text;
  }
  EXPECT_LE(cache.statistics().held_bytes, 10 * kMiB);
  cache.free(six);
  // Cached blocks of other sizes make room.
  void* nine = cache.allocate(9 * kMiB);
  EXPECT_LE(cache.statistics().held_bytes, 10 * kMiB);
  cache.free(nine);
  EXPECT_LE(cache.statistics().peak_held_bytes, 10 * kMiB);
}

TEST(BlockCache, GivesItsCacheBackWhenTheSystemRefuses) {
  CountedMemory memory;
  BlockCache cache(0, memory);
  void* six = cache.allocate(6 * kMiB);
  cache.free(six);
  memory.available = 10 * kMiB;
  void* nine = cache.allocate(9 * kMiB);
  EXPECT_EQ(memory.refusals, 1);
  memory.available = 0;
  EXPECT_THROW(cache.allocate(1), Error);
  EXPECT_THROW(cache.allocate(4 * kMiB), Error);
  EXPECT_EQ(cache.statistics().held_bytes, memory.out());
  EXPECT_EQ(cache.statistics().used_bytes, memory.out()) << "what was refused is not in use";
  std::memset(nine, 1, 9 * kMiB);
  cache.free(nine);
}

TEST(BlockCache, ImpossibleSizesAreErrors) {
  BlockCache cache(0);
  EXPECT_THROW(cache.allocate(~size_t{0}), Error);
  EXPECT_THROW(cache.allocate(size_t{1} << 60), Error);
  EXPECT_EQ(cache.statistics().held_bytes, 0u);
  cache.free(nullptr);
}

// Random allocations and frees, each block filled with its own byte: no block may be given out twice, nor change.
void churn(BlockCache& cache, uint64_t id, int rounds) {
  struct Held {
    unsigned char* data;
    size_t size;
    unsigned char fill;
  };
  RandomStream random(5, "churn", {id});
  std::vector<Held> held;
  for (int i = 0; i < rounds; ++i) {
    if (held.size() < 20 && random.next_bool()) {
      const size_t size = 1 + random.below(uint64_t{1} << random.below(22));
      auto* data = static_cast<unsigned char*>(cache.allocate(size));
      held.push_back({data, size, static_cast<unsigned char>(random.next_u32())});
      std::memset(data, held.back().fill, size);
    } else if (!held.empty()) {
      const size_t which = random.below(held.size());
      const Held block = held[which];
      EXPECT_EQ(block.data[0], block.fill);
      EXPECT_EQ(std::memcmp(block.data, block.data + 1, block.size - 1), 0);
      cache.free(block.data);
      held.erase(held.begin() + static_cast<ptrdiff_t>(which));
    }
    if (i % 500 == 0) cache.trim();
  }
  for (const Held& block : held) cache.free(block.data);
}

TEST(BlockCache, ContentsSurviveOthers) {
  BlockCache cache(0);
  {
    std::vector<Thread> threads;
    for (uint64_t id = 0; id < 3; ++id) {
      threads.emplace_back(ThreadOptions{.name = "churn"}, [&, id] { churn(cache, id, 2000); });
    }
  }
  EXPECT_EQ(cache.statistics().used_bytes, 0u);
  EXPECT_GT(cache.statistics().cache_hits, 0u);
  cache.trim();
  EXPECT_EQ(cache.statistics().held_bytes, 0u);
}

TEST(BlockCache, ALimitMayBeReachedButNotPassed) {
  CountedMemory memory;
  BlockCache unlimited(0, memory);
  void* const first = unlimited.allocate(1000);
  const uint64_t bytes = unlimited.statistics().held_bytes;
  unlimited.free(first);
  BlockCache exact(bytes, memory), less(bytes - 1, memory);
  void* const data = exact.allocate(1000);
  EXPECT_EQ(exact.statistics().held_bytes, bytes);
  exact.free(data);
  EXPECT_THROW(less.allocate(1000), Error);
  EXPECT_EQ(less.statistics().held_bytes, 0U);
  EXPECT_EQ(less.statistics().used_bytes, 0U);
}

TEST(BlockCache, BlocksOfTheCacheCountInThePeak) {
  CountedMemory memory;
  BlockCache cache(0, memory);
  void* const small = cache.allocate(1000);
  const uint64_t small_bytes = cache.statistics().used_bytes;
  cache.free(small);
  void* const large = cache.allocate(100'000);
  const uint64_t large_bytes = cache.statistics().used_bytes;
  EXPECT_EQ(cache.statistics().peak_used_bytes, large_bytes);
  void* const again = cache.allocate(1000);
  EXPECT_EQ(again, small);
  EXPECT_EQ(cache.statistics().peak_used_bytes, small_bytes + large_bytes);
  cache.free(again);
  cache.free(large);
  EXPECT_EQ(cache.statistics().peak_used_bytes, small_bytes + large_bytes);
  EXPECT_EQ(cache.statistics().peak_held_bytes, small_bytes + large_bytes);
}

TEST(BlockCache, ALimitIsToldOnlyWhereThereIsOne) {
  BlockCache unlimited(0), limited(1);
  const auto message = [](BlockCache& cache) -> std::string {
    try {
      cache.allocate(size_t{1} << 60);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string begin =
      "out of memory for a block of 1152921504606846976 bytes (1099511627776.0 MiB): got 0.0 MiB used of 0.0 MiB "
      "held, ";
  const std::string without = message(unlimited), with = message(limited);
  EXPECT_EQ(without.substr(0, begin.size()), begin);
  EXPECT_EQ(without.find("limit "), without.rfind("limit ")) << without << ": only in the remedy";
  EXPECT_EQ(with.substr(0, begin.size() + 15), begin + "limit 0.0 MiB, ") << with;
}

// Returns how many bytes this process has mapped.
int64_t mapped_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

// The part of a mapping that only serves to align it is given back at once, and the rest with the block.
TEST(SystemMemory, LargeBlocksMapNoMoreThanTheyHold) {
  static_cast<void>(mapped_bytes());  // takes the memory of reading
  constexpr int kBlocks = 16;
  constexpr size_t kBytes = 2 * kMiB + 5000;  // no whole pages
  const int64_t before = mapped_bytes();
  std::vector<void*> blocks;
  blocks.reserve(kBlocks);
  for (int i = 0; i < kBlocks; ++i) {
    blocks.push_back(system_memory().take(kBytes, true));
    ASSERT_NE(blocks.back(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % (2 * kMiB), 0U);
    static_cast<char*>(blocks.back())[kBytes - 1] = 1;
  }
  const int64_t more = mapped_bytes() - before, expected = kBlocks * static_cast<int64_t>(2 * kMiB + 8192);
  EXPECT_GE(more, expected - static_cast<int64_t>(kMiB));
  EXPECT_LE(more, expected + static_cast<int64_t>(kMiB));
  for (void* const block : blocks) system_memory().release(block, kBytes, true);
  EXPECT_LE(mapped_bytes(), before + static_cast<int64_t>(kMiB));
}

TEST(SystemMemory, BlocksOfWholePagesMapNoPageMore) {
  constexpr int kBlocks = 512;
  std::vector<void*> blocks(kBlocks);
  const int64_t before = mapped_bytes();
  for (void*& block : blocks) block = system_memory().take(2 * kMiB, true);
  EXPECT_LE(mapped_bytes() - before, static_cast<int64_t>(kBlocks * 2 * kMiB + kMiB));
  for (void* const block : blocks) {
    ASSERT_NE(block, nullptr);
    system_memory().release(block, 2 * kMiB, true);
  }
}

TEST(SystemMemory, SmallBlocksAreFreed) {
  constexpr int kBlocks = 1000;
  constexpr size_t kBytes = 100'000;
  const int64_t before = mapped_bytes();
  for (int i = 0; i < kBlocks; ++i) {
    void* const block = system_memory().take(kBytes, false);
    ASSERT_NE(block, nullptr);
    static_cast<char*>(block)[kBytes - 1] = 1;
    system_memory().release(block, kBytes, false);
  }
  EXPECT_LE(mapped_bytes(), before + static_cast<int64_t>(kBlocks * kBytes / 2));
}

}  // namespace
}  // namespace trainyard::core::block_cache_test
