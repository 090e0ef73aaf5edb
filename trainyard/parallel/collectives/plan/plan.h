// The steps of one process in a collective, as data: an algorithm returns them (algorithm.h), and PlanRun executes them
// over any transport (plan_run.h).
//
// A plan has lanes. The steps of a lane begin in their order, and lanes run concurrently. A transfer begins as soon as
// fewer than `window` transfers of its lane are pending; a reduction or a copy waits until all earlier steps of its
// lane are done. `after` names the steps of other lanes that a step needs. A lane with a window of 1 is a list of
// steps, each of which waits for the one before.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/parallel/collectives/plan/collective_call.h"

namespace trainyard::parallel {

// The distribution of replicas over processes. Replicas have global ranks, in the order of the processes.
struct RankLayout {
  int process = 0;
  std::vector<int> first_ranks;  // first rank of each process, then the number of ranks
  // The machine of each process, as a number. Empty: each process has a machine of its own.
  std::vector<int> hosts;

  int processes() const { return static_cast<int>(first_ranks.size()) - 1; }
  int ranks() const { return first_ranks.back(); }
  int first() const { return first_ranks[static_cast<size_t>(process)]; }
  int end() const { return first_ranks[static_cast<size_t>(process) + 1]; }
  // Returns the number of replicas of this process.
  int local() const { return end() - first(); }
  int process_of(int rank) const;
  // Returns the ranks of each machine. Machines are in the order of their first ranks.
  std::vector<std::vector<int>> ranks_by_host() const;
};

// The bytes of a chunk in the type of partial sums. A chunk is small enough to stay in the L2 cache between two
// neighbours on one machine. Small collectives of other groups run between two chunks of a large one.
constexpr int64_t kChunkBytes = 256 * 1024;
// Returns the elements of a chunk.
int64_t chunk_elements(at::ScalarType type);

// The collective that an algorithm plans. All members but layout.process and `worker` are the same on all processes.
struct CollectiveRequest {
  CollectiveCall::Kind kind = CollectiveCall::Kind::kBarrier;
  int root = 0;          // rank; of a broadcast
  int64_t elements = 0;  // of each rank's tensor
  at::ScalarType type = at::kFloat;
  RankLayout layout;
  // The number of threads of this process that execute a plan each, and the index of this thread. A process engine is
  // one thread; for replicas on threads of one process each thread is one.
  int workers = 1, worker = 0;
  // The number of parts in which an algorithm that can do so exchanges a tensor at the same time: "#n" of an
  // all_reduce_spec.
  int64_t shards = 1;
  // The number of this collective among those of its communicators. Algorithms that take turns between places use it.
  uint64_t number = 0;
  // The bytes of a chunk of an all-reduce by "chain" or "shuffle", in the type of partial sums.
  int64_t chunk_bytes = kChunkBytes;

  // Returns the elements of such a chunk, at least 1.
  int64_t elements_of_chunk() const;
};

// The memory that a step reads or writes, from the element `begin` on.
struct Place {
  enum class Memory : uint8_t {
    kNone,
    kReplica,      // the tensor of this process's replica `index`
    kAllReplicas,  // the tensors of all replicas of this process
    kGathered,     // the result of all_gather, one rank after the other
    kScratch       // memory `index` of CollectivePlan::scratch
  };
  Memory memory = Memory::kNone;
  int index = 0;
  int64_t begin = 0;

  static Place replica(int index, int64_t begin) { return {Memory::kReplica, index, begin}; }
  static Place all_replicas(int64_t begin) { return {Memory::kAllReplicas, 0, begin}; }
  static Place gathered(int64_t begin) { return {Memory::kGathered, 0, begin}; }
  static Place scratch(int index, int64_t begin) { return {Memory::kScratch, index, begin}; }
};

// A condition that is met when `steps` steps of a lane are done. Zero or less: it is always met.
struct After {
  int lane = 0;
  int64_t steps = 0;
};

struct Step {
  enum class Action : uint8_t {
    kSend,     // `from` to `peer`
    kReceive,  // `to` from `peer`
    // Combines `from`, which holds partial sums or is kNone, with `values` in rank order where they are those of all
    // replicas, into `to`. Partial sums are in partial_type() of the tensors' type. Into kAllReplicas goes the result
    // of all ranks: rounded to the tensors' type and, for a mean, divided. `values` are those of all replicas or none
    // then.
    kReduce,
    kFinish,  // turns `from`, the sums of all ranks, into the result, and writes it into `to`, a kReplica
    kCopy     // `from` to `to`
  };
  Action action = Action::kCopy;
  int peer = -1;  // process
  int64_t elements = 0;
  Place from, values, to;
  std::array<After, 2> after = {};
};
// Returns true for steps that send or receive.
bool is_transfer(const Step& step);

struct Lane {
  std::vector<Step> steps;
  // Messages of a lane arrive in the lanes of its peers with the same stream. 0 to kMostStreams - 1.
  int stream = 0;
  int window = 4;  // transfers on their way at a time, at least 1
  // True: begins as soon as this process and all before it agree on the call, before the last process has confirmed
  // that all do. Its messages may go to later processes only.
  bool early = false;
  // The index of the first step of each part of the tensor that the lane exchanges, one part after another. Nothing
  // that executes the plan reads it; parallel/simulation does. Empty: the lane is not cut into parts.
  std::vector<int64_t> parts{};
};
constexpr int kMostStreams = 14;

struct CollectivePlan {
  struct Scratch {
    int64_t elements = 0;
    // True: partial sums, in partial_type(). False: values in the tensors' type.
    bool sums = false;
    // True: the tensor of `replica` takes its place where it has the same type. Its elements match the tensor's.
    bool in_place = false;
    int replica = 0;
  };
  std::vector<Scratch> scratch;
  std::vector<Lane> lanes;
  // The type in which the numbers of messages travel where theirs is wider, bfloat16 or half. The result is rounded to
  // it, too, so that the rank that computed it has the bits of those that received it. Undefined: numbers travel as
  // they are.
  at::ScalarType wire = at::ScalarType::Undefined;
};

// The messages and bytes that a process sends, without those that agree on the call.
struct Traffic {
  int64_t messages = 0, bytes = 0;
  bool operator==(const Traffic&) const = default;
};
// Returns the type of the elements at `place` of a plan over tensors of `type`.
at::ScalarType element_type(const CollectivePlan& plan, const Place& place, at::ScalarType type);
// Returns the bytes of an element at `place`.
size_t element_bytes(const CollectivePlan& plan, const Place& place, at::ScalarType type);
// Returns the type in which numbers of `type` travel in messages of the plan.
at::ScalarType wire_type(const CollectivePlan& plan, at::ScalarType type);
// Returns what the steps of a plan over tensors of `type` send.
Traffic traffic_of(const CollectivePlan& plan, at::ScalarType type);

}  // namespace trainyard::parallel
