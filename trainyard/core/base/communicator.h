// Collectives between replicas or ranks. Implementations: parallel/threads (replicas on threads of one process) and
// parallel/nccl (GPUs, of one process or of several).
//
// Every method below is collective: all ranks call the same ones in the same order, each communicator from one thread a
// rank at a time. A call that waits longer than the deadline throws kTimeout; after abort() every waiter and every
// later call throws kPeerFailed with the aborter's message.
#pragma once

#include <chrono>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

enum class ReduceOp { kSum, kMean, kMax, kMin };

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place; contiguous, same shape and dtype on all ranks. The result has the same bits on every rank.
  virtual void all_reduce(at::Tensor tensor, ReduceOp op) = 0;
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
