// A rank's part of the control block in shared memory: its calls, and how far it is. docs/design/shared_memory.md
// describes the protocol. Zeros are its initial state. All processes run the same program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/collectives/plan/collective_call.h"
#include "trainyard/parallel/collectives/shared_memory/futex.h"

namespace trainyard::parallel {

// A call, as its rank describes it to the others.
struct SharedCall {
  static constexpr int kMostDimensions = 16;
  static constexpr size_t kText = 80;

  int32_t kind, argument, type, dimensions;
  int64_t shape[kMostDimensions];
  int64_t offset;  // of the tensor in the shared memory, in bytes; -1: it lies elsewhere
  char problem[kText];

  // Writes a call whose tensor lies at `offset`.
  void set(const CollectiveCall& call, int64_t offset);
  // Returns the call without its tensor.
  CollectiveCall get() const;
  // Returns whether both ranks call the same, and neither has a problem.
  bool fits(const SharedCall& other) const;
};

struct SharedRank {
  // A rank has at most kMostStarted calls and one more open, and is at most that many calls ahead of another one. So an
  // entry is written again only when no rank reads it.
  static constexpr uint32_t kCalls = 512;
  static_assert(kCalls > 2 * (core::Communicator::kMostStarted + 1));

  alignas(128) SharedCount called;  // calls that the rank has made
  alignas(128) SharedCount phase;   // phases of calls that the rank has finished
  std::atomic<int> processor;       // on which the rank was last seen
  alignas(128) SharedCall calls[kCalls];
  static constexpr size_t kCpuWords = 16;
  uint64_t cpus[kCpuWords];  // bits of the processors that the rank's process may use

  SharedCall& call(uint32_t number) { return calls[number % kCalls]; }
};

}  // namespace trainyard::parallel
