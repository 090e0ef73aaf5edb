#include "trainyard/parallel/collectives/shared_memory/shared_group.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <sched.h>
#include <unistd.h>

#include "trainyard/core/base/log.h"

namespace trainyard::parallel {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kSpin = microseconds(50);
constexpr auto kLongestSleep = milliseconds(50);

size_t up_to_large(size_t bytes) {
  return SharedArena::rounded(std::max(bytes, SharedArena::kLarge));
}

size_t staging_offset(const RankLayout& layout) {
  return up_to_large(sizeof(SharedRank) * static_cast<size_t>(layout.ranks()));
}

size_t arenas_offset(const RankLayout& layout) {
  return up_to_large(staging_offset(layout) + SharedGroup::kStagingBytes * static_cast<size_t>(layout.ranks()));
}

SharedArena arena_of(const core::SharedMemory& memory, const RankLayout& layout) {
  const size_t first = std::min(arenas_offset(layout), memory.bytes());
  const size_t share =
      (memory.bytes() - first) / static_cast<size_t>(layout.processes()) / SharedArena::kLarge * SharedArena::kLarge;
  const size_t begin = first + share * static_cast<size_t>(layout.process);
  return {begin, begin + share};
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

SharedGroup::SharedGroup(core::SharedMemory memory, RankLayout layout)
    : memory_(std::move(memory)), layout_(std::move(layout)), arena_(arena_of(memory_, layout_)) {
  memory_.close_descriptor();
  cpu_set_t allowed;
  static_assert(sizeof(allowed) == sizeof(SharedRank::cpus));
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof(allowed), &allowed);
  std::memcpy(rank(layout_.first()).cpus, &allowed, sizeof(allowed));
}

void SharedGroup::count_processors() {
  int processors = 0;
  for (size_t word = 0; word < SharedRank::kCpuWords; ++word) {
    uint64_t any = 0;
    for (int p = 0; p < layout_.processes(); ++p) any |= rank(layout_.first_ranks[static_cast<size_t>(p)]).cpus[word];
    processors += std::popcount(any);
  }
  has_cores_ = processors >= layout_.ranks();
}

SharedRank& SharedGroup::rank(int rank) const {
  return reinterpret_cast<SharedRank*>(memory_.data())[rank];
}

char* SharedGroup::staging(int rank) const {
  return memory_.data() + staging_offset(layout_) + kStagingBytes * static_cast<size_t>(rank);
}

int64_t SharedGroup::offset_of(const void* data, size_t bytes) const {
  const auto place = reinterpret_cast<uintptr_t>(data), begin = reinterpret_cast<uintptr_t>(memory_.data());
  if (place < begin || place - begin > memory_.bytes() || bytes > memory_.bytes() - (place - begin)) return -1;
  return static_cast<int64_t>(place - begin);
}

at::Tensor SharedGroup::new_tensor(int64_t elements, at::ScalarType type) {
  const size_t bytes = static_cast<size_t>(elements) * c10::elementSize(type);
  if (bytes == 0) return {};
  const std::optional<size_t> offset = arena_.take(bytes);
  const size_t room = SharedArena::rounded(bytes);
  if (!offset || !memory_.populate(*offset, room)) {
    if (offset) arena_.give_back(*offset, bytes);
    core::log::warning("no shared memory for {} bytes, which are copied in each exchange", bytes);
    return {};
  }
  const auto give_back = [group = shared_from_this(), offset = *offset, bytes, room](void*) {
    {
      const std::lock_guard lock(group->kept_mutex_);
      if (group->kept_.contains(static_cast<int64_t>(offset))) return;
    }
    group->memory_.release(offset, room);
    group->arena_.give_back(offset, bytes);
  };
  return at::from_blob(memory_.data() + *offset, {elements}, give_back, at::TensorOptions(type));
}

void SharedGroup::keep(int64_t offset) {
  const std::lock_guard lock(kept_mutex_);
  kept_.insert(offset);
}

at::Tensor SharedGroup::view(int64_t offset, at::IntArrayRef shape, at::ScalarType type) {
  const auto keep_mapping = [group = shared_from_this()](void*) {};
  return at::from_blob(at(offset), shape, keep_mapping, at::TensorOptions(type));
}

void SharedGroup::await(int rank, SharedCount SharedRank::*count, uint32_t target,
                        const std::function<void()>& check) const {
  SharedCount& awaited = (this->rank(rank).*count);
  if (awaited.reached(target)) return;
  // A rank that was last seen on this processor cannot run while this thread spins.
  if (has_cores_ && this->rank(rank).processor.load(std::memory_order_relaxed) != ::sched_getcpu()) {
    for (const auto end = Clock::now() + kSpin; Clock::now() < end;) {
      for (int i = 0; i < 16; ++i) {
        if (awaited.reached(target)) return;
        pause();
      }
    }
  }
  while (!awaited.reached(target)) {
    check();
    awaited.sleep(target, kLongestSleep);
  }
}

void SharedGroup::note_processor(int rank) const {
  this->rank(rank).processor.store(::sched_getcpu(), std::memory_order_relaxed);
}

bool SharedGroup::begin(uint32_t number) {
  return begun_[number % SharedRank::kCalls].fetch_add(1) + 1 == layout_.local();
}

bool SharedGroup::end(uint32_t number) {
  std::atomic<int>& ended = ended_[number % SharedRank::kCalls];
  if (ended.fetch_add(1) + 1 != layout_.local()) return false;
  begun_[number % SharedRank::kCalls] = 0;
  ended = 0;
  return true;
}

}  // namespace trainyard::parallel
