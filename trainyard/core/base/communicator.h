// Collectives between replicas or ranks. Implementations: parallel/collectives/threads (replicas on threads of one
// process) and parallel/collectives/nccl (GPUs, of one process or of several).
//
// Every method below is collective: all ranks call the same ones in the same order, each communicator from one thread a
// rank at a time. A call that waits longer than the deadline throws kTimeout; after abort() every waiter and every
// later call throws kPeerFailed with the aborter's message.
#pragma once

#include <chrono>
#include <cstdint>
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
// The destructor never blocks, also when the collective was not waited for (after an error, say). An algorithm that
// progresses in the background then finishes by itself: it keeps the tensor's memory until the last byte has been sent
// or received, and the tensor's content is undefined. Any other algorithm drops the collective, and the other ranks
// wait for it until their deadline or until abort().
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

  // Reduces in place. The tensor is contiguous and has the same shape and dtype on all ranks. The result has the same
  // bits on every rank.
  virtual void all_reduce(at::Tensor tensor, ReduceOp op) = 0;
  // Begins an all_reduce(). The caller must neither read nor write the tensor until wait() has returned. Up to
  // kMostStarted all-reduces may be pending; all ranks start the same ones in the same order, and wait for them in that
  // order. Throws kInvalidArgument when more are pending.
  virtual std::unique_ptr<PendingCollective> start_all_reduce(at::Tensor tensor, ReduceOp op);
  static constexpr int kMostStarted = 128;
  // Returns true when a started all-reduce progresses while its caller computes. Returns false when all of the work is
  // done in wait(), so that starting early gains nothing. The same on all ranks.
  [[nodiscard]] virtual bool progresses_in_background() const { return false; }
  // Returns zeros, [elements], in memory where the other ranks can read them, so that an all-reduce of the tensor or of
  // a part of it copies nothing. Returns an undefined tensor where any memory is as good, which is the default. Not
  // collective. CPU.
  [[nodiscard]] virtual at::Tensor new_exchanged(int64_t /*elements*/, at::ScalarType /*dtype*/) { return {}; }
  // Returns each rank's tensor where it lies, in the order of ranks: memory that all of them read and write. Empty on
  // all ranks when one rank's memory cannot be reached (messages, GPUs, memory elsewhere than new_exchanged()'s), when
  // dtypes or numbers of dimensions differ (sizes may), and when an algorithm was chosen, whose sums may have another
  // order than the ranks. The memory of a rank's tensor from new_exchanged() keeps its content until the last rank has
  // ended. CPU.
  [[nodiscard]] virtual std::vector<at::Tensor> peer_views(const at::Tensor& /*tensor*/) { return {}; }
  // Copies the tensor of rank `root` into the tensors of all other ranks, in place.
  virtual void broadcast(at::Tensor tensor, int root) = 0;
  // Returns the tensors of all ranks, in rank order. Shape and dtype are the same on all ranks.
  [[nodiscard]] virtual std::vector<at::Tensor> all_gather(const at::Tensor& tensor) = 0;
  virtual void barrier() = 0;

  // Wakes all waiters of all ranks with `error`. Not collective: any thread may call it at any time. The first error is
  // kept.
  virtual void abort(const Error& error) = 0;

  // Returns the seconds that this rank's calls, and waits for started ones, have spent until all ranks had called the
  // same: time that others made it wait, and not the moving of numbers. A GPU's communicator cannot tell: 0. The rank's
  // thread calls it, or one that has met it since.
  [[nodiscard]] virtual double waiting_seconds() const { return 0; }

  // Sets how long a call may wait for its peers.
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  std::chrono::milliseconds deadline() const { return deadline_; }

 private:
  std::chrono::milliseconds deadline_{std::chrono::minutes(10)};
};

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
