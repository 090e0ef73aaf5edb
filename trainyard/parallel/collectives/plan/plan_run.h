// Executes a plan: starts its transfers, polls them in turn, and reduces and copies one chunk at a time. It never
// blocks. Used by one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/collectives/plan/message_transport.h"
#include "trainyard/parallel/collectives/plan/plan.h"

namespace trainyard::parallel {

// The memory that the places of a plan refer to. The owner keeps the tensors alive.
struct PlanMemory {
  at::ScalarType type = at::kFloat;
  core::ReduceOp op = core::ReduceOp::kSum;
  int ranks = 1;                // of all processes
  std::vector<void*> replicas;  // memory of the tensors of this process's replicas
  at::Tensor gathered;          // [ranks, ...]; of all_gather
};

// Returns the memory of the calls of this process's replicas, with new memory for the result of all_gather. `ranks`: of
// all processes.
PlanMemory memory_of(const std::vector<CollectiveCall>& calls, int ranks);
// Returns the request that a call makes to an algorithm.
CollectiveRequest request_of(const CollectiveCall& call, const RankLayout& layout);

class PlanRun {
 public:
  PlanRun(CollectivePlan plan, PlanMemory memory);

  // Executes the steps that can run without blocking, at most one reduction and one copy in each lane. Messages of
  // stream s have the tag first_tag + s. `agreed`: lanes that are not early may begin. Returns true when anything
  // moved. Throws kPeerFailed.
  bool advance(MessageTransport& transport, int first_tag, bool agreed);
  // Executes a plan without transfers completely. Throws kInternal for a plan with transfers, or with a step that waits
  // for itself.
  void run_locally();

  bool complete() const { return left_ == 0; }
  // Returns true when no transfer is pending, so that the memory may be freed.
  bool quiet() const;
  // Returns the process that the first lane with a pending transfer waits for; -1 when there is none.
  int waits_for() const;
  // Returns what has been sent so far.
  Traffic sent() const { return sent_; }

 private:
  // A pending message, and its numbers in the wire type where that is another one.
  struct Message {
    std::unique_ptr<Transfer> transfer;
    at::Tensor wire{};
  };
  struct LaneRun {
    int64_t begun = 0, done = 0;        // steps
    std::vector<Message> on_their_way;  // as many as the lane's window at most
  };
  bool advance_lane(size_t lane, MessageTransport* transport, int first_tag);
  bool may_begin(const Step& step) const;
  Message begin_transfer(const Step& step, MessageTransport* transport, int tag);
  void end_transfer(const Step& step, const Message& message);
  void execute(const Step& step);
  void reduce(const Step& step);
  void finish(const Step& step);
  void round_result(const Place& place, int64_t elements);
  void copy(const Step& step);
  char* address(const Place& place) const;

  const CollectivePlan plan_;
  PlanMemory memory_;
  std::vector<at::Tensor> scratch_;  // undefined: the first replica's tensor is used
  std::vector<LaneRun> lanes_;
  int64_t left_ = 0;  // steps that are not done
  Traffic sent_;
};

}  // namespace trainyard::parallel
