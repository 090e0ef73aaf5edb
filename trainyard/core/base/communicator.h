// Collectives between replicas or ranks. Implementations: parallel/collectives/threads (replicas on threads of one
// process) and parallel/collectives/nccl (GPUs, of one process or of several).
//
// Every method below is collective: all ranks call the same ones in the same order, each communicator from one thread a
// rank at a time. A call that waits longer than the deadline throws kTimeout; after abort() every waiter and every
// later call throws kPeerFailed with the aborter's message.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

enum class ReduceOp { kSum, kMean, kMax, kMin };

// A collective that this rank has started. Used by one thread at a time; its communicator must outlive it.
//
// One that is destroyed before it was waited for, as an error on the way does, makes nobody wait here. Either it goes
// on without its caller: the memory of its tensor then stays until its last byte has come or left, and what the tensor
// holds is undefined. Or it does not take place, and the other ranks wait for it until their deadline or until abort().
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;

  // Returns true when wait() would not block. Where a communicator does the work within wait(), false until then.
  [[nodiscard]] virtual bool poll() = 0;
  // Blocks until the result is there; the deadline counts from this call on. Throws what the collective throws. A
  // second call does nothing.
  virtual void wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place; contiguous, same shape and dtype on all ranks. The result has the same bits on every rank.
  virtual void all_reduce(at::Tensor tensor, ReduceOp op) = 0;
  // Begins an all_reduce(). Nobody may touch the tensor until it was waited for. Several may be on their way,
  // kMostStarted of them at most; all ranks start the same ones in the same order, and wait for them in that order.
  // Throws kInvalidArgument where too many are on their way.
  virtual std::unique_ptr<PendingCollective> start_all_reduce(at::Tensor tensor, ReduceOp op);
  static constexpr int kMostStarted = 128;
  // Returns true where a started all-reduce goes on while its caller computes, and false where all of it is done in
  // wait(), so that nothing is won by starting it early. The same on all ranks.
  [[nodiscard]] virtual bool goes_on_alone() const { return false; }
  // In place, from `root` to all others.
  virtual void broadcast(at::Tensor tensor, int root) = 0;
  // One tensor a rank, in rank order. Same shape and dtype on all ranks.
  virtual std::vector<at::Tensor> all_gather(const at::Tensor& tensor) = 0;
  virtual void barrier() = 0;

  // Not collective: any thread, any time. Wakes all waiters of all ranks with `error`. The first error stays.
  virtual void abort(const Error& error) = 0;

  // How long a call may wait for its peers.
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  std::chrono::milliseconds deadline() const { return deadline_; }

 private:
  std::chrono::milliseconds deadline_{std::chrono::minutes(10)};
};

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
