// Lets the batch norms of several replicas normalize with the statistics of all their batches together, which PyTorch
// calls SyncBatchNorm. Each replica's executor gets one (BuildContext::sync_batch_norm). Each norm makes one all-reduce
// in its forward pass and one in its backward pass, so all replicas must run the same norms in the same order.
//
//   auto communicators = parallel::make_thread_communicators(2);
//   nn::SyncBatchNorm exchange(std::move(communicators[replica]));
//   auto executor = nn::make_executor("cpu", graph, {.parameters = &set, .gradients = &sink, .sync_batch_norm =
//   &exchange});
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/core/base/error.h"

namespace trainyard::nn {

// The synchronization of one replica. Calls throw as the communicator does. All but abort() come from the thread that
// runs the replica.
class SyncBatchNorm {
 public:
  // Takes one member of a group that is used for nothing else, because other collectives may run at the same time.
  explicit SyncBatchNorm(std::unique_ptr<core::Communicator> communicator);

  // Collective. Turns the moments of this replica's batch into those of all batches together. `moments` is [2 C + 1]
  // double on the CPU, contiguous: the means of C channels, their biased variances, and the number of values in a
  // channel. Batches may differ in size. They are combined in the order of ranks, two at a time (Chan, Golub, LeVeque,
  // "Updating formulae and a pairwise algorithm for computing sample variances", 1979), which a large mean does not
  // harm. The result has the same bits on all replicas.
  void all_reduce_moments(const at::Tensor& moments);

  // Collective. Replaces `values`, on the CPU and contiguous, by their sum over all replicas.
  void all_reduce_sum(const at::Tensor& values);

  // While it is paused, both all-reduces do nothing: for one replica that runs a step again by itself.
  void set_paused(bool paused) { paused_ = paused; }

  // Wakes the replicas that wait here, after another one has failed. Any thread.
  void abort(const core::Error& error) { communicator_->abort(error); }

  // Returns the seconds that were spent here so far, most of them waiting for other replicas.
  double seconds() const { return seconds_; }
  // Returns how many of them passed until all replicas had come.
  double waiting_seconds() const { return communicator_->waiting_seconds(); }

 private:
  std::unique_ptr<core::Communicator> communicator_;
  bool paused_ = false;
  double seconds_ = 0;
};

}  // namespace trainyard::nn
