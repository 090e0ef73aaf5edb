// The shared memory of the ranks of one machine (docs/design/shared_memory.md): control blocks, staging and arenas.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/memory/shared_memory.h"
#include "trainyard/parallel/collectives/plan/plan.h"
#include "trainyard/parallel/collectives/shared_memory/exchange_watch.h"
#include "trainyard/parallel/collectives/shared_memory/shared_arena.h"
#include "trainyard/parallel/collectives/shared_memory/shared_call.h"

namespace trainyard::parallel {

// Thread-safe, but for what one rank writes. The last tensor of new_tensor() keeps it alive.
class SharedGroup : public std::enable_shared_from_this<SharedGroup> {
 public:
  static constexpr size_t kStagingBytes = 256 * 1024;

  // Collective over the processes: makes the memory of a group. Returns null on all processes when one of them cannot
  // map it, as on another machine; a line of the log says why. `processes` is between the processes of `layout`.
  static std::shared_ptr<SharedGroup> connect(ExchangeWatch& watch, core::Communicator& processes,
                                              const RankLayout& layout);
  // `memory` is the same on all processes of `layout`, and new.
  SharedGroup(core::SharedMemory memory, RankLayout layout);

  const RankLayout& layout() const { return layout_; }
  SharedRank& rank(int rank) const;
  char* staging(int rank) const;
  // Returns where memory of this process lies in the shared memory; -1 for other memory.
  int64_t offset_of(const void* data, size_t bytes) const;
  char* at(int64_t offset) const { return memory_.data() + offset; }

  // Returns zeros, [elements], in this process's arena; an undefined tensor when there is no room.
  at::Tensor new_tensor(int64_t elements, at::ScalarType type);
  // Lets the tensor of new_tensor() at this offset keep its memory until the last process has unmapped the group:
  // others may read it after its process has dropped it.
  void keep(int64_t offset);
  // Returns a tensor of this shape at an offset, of any process. It keeps the mapping.
  at::Tensor view(int64_t offset, at::IntArrayRef shape, at::ScalarType type);

  // Blocks until a count of a rank comes to `target`. `check` is called at least every 50 ms, and may throw.
  void await(int rank, SharedCount SharedRank::*count, uint32_t target, const std::function<void()>& check) const;
  // Says on which processor the rank runs: the calling thread's.
  void note_processor(int rank) const;
  // Says that one of this process's ranks begins or ends its work on call `number`. Returns true for the last one of
  // them that does.
  bool begin(uint32_t number);
  bool end(uint32_t number);

  // The bytes that this process has copied into staging and out of it.
  std::atomic<int64_t>& copied_bytes() { return copied_bytes_; }

 private:
  void count_processors();

  core::SharedMemory memory_;
  const RankLayout layout_;
  SharedArena arena_;
  std::mutex kept_mutex_;
  std::set<int64_t> kept_;  // offsets
  bool has_cores_ = true;   // for each rank
  std::array<std::atomic<int>, SharedRank::kCalls> begun_{}, ended_{};
  std::atomic<int64_t> copied_bytes_ = 0;
};

}  // namespace trainyard::parallel
