// Collectives between ranks of one machine that share memory (docs/design/shared_memory.md). All work is done by the
// callers: no thread of their own is needed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/collectives/shared_memory/shared_group.h"

namespace trainyard::parallel {

class SharedMemoryCommunicator final : public core::Communicator {
 public:
  // `replica`: the index of the rank among those of this process.
  SharedMemoryCommunicator(int replica, std::shared_ptr<ExchangeWatch> watch, std::shared_ptr<SharedGroup> group);

  int rank() const override { return rank_; }
  int size() const override { return group_->layout().ranks(); }

  void all_reduce(at::Tensor tensor, core::ReduceOp op) override;
  std::unique_ptr<core::PendingCollective> start_all_reduce(at::Tensor tensor, core::ReduceOp op) override;
  void broadcast(at::Tensor tensor, int root) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override;
  void abort(const core::Error& error) override;
  // All-reduces of such tensors copy nothing.
  at::Tensor new_exchanged(int64_t elements, at::ScalarType type) override;
  std::vector<at::Tensor> peer_views(const at::Tensor& tensor) override;

  double waiting_seconds() const override { return waiting_seconds_; }

  // Returns how many bytes all ranks of this process have copied from their tensors or to them.
  int64_t copied_bytes() const { return group_->copied_bytes(); }

 private:
  class Started;
  using Clock = std::chrono::steady_clock;
  // A call that this rank has made and not finished.
  struct Open {
    CollectiveCall call;  // keeps the tensor
    int64_t offset = -1;
    at::Tensor gathered{};  // of all_gather
  };

  // Makes a call known to the others. Returns its number.
  uint32_t publish(CollectiveCall call);
  // Finishes all calls up to this one, in order. The deadline counts from now.
  at::Tensor finish(uint32_t number);
  void execute(Open& open, Clock::time_point end);
  // Returns the error that all ranks get when their calls differ.
  std::optional<core::Error> compare() const;
  void reduce(const Open& open, Clock::time_point end);
  void copy_from_root(const Open& open, Clock::time_point end);
  void gather(Open& open, Clock::time_point end);
  struct Staging {
    int first = 0, last = 0;       // the ranks whose tensors are read
    bool in = false, out = false;  // whether this rank's values go into staging before a step, and out of it afterwards
  };
  // Calls `step` for parts of the tensors: the memory of all ranks at the first element of a part, the first element,
  // and the number of elements. When the tensors that are read lie in shared memory, there is one part.
  template <typename Step>
  void in_parts(const Open& open, Clock::time_point end, Staging staging, Step step);
  // Returns when all ranks have finished as many phases as this one.
  void end_phase(const CollectiveCall& call, Clock::time_point end);
  void await(SharedCount SharedRank::*count, uint32_t target, const CollectiveCall& call, Clock::time_point end);
  [[noreturn]] void give_up(SharedCount SharedRank::*count, uint32_t target, const CollectiveCall& call);
  SharedCall& call_of(int rank) const { return group_->rank(rank).call(finished_); }

  const int rank_;
  const std::shared_ptr<ExchangeWatch> watch_;
  const std::shared_ptr<SharedGroup> group_;
  uint32_t finished_ = 0;  // calls
  uint32_t phase_ = 0;
  double waiting_seconds_ = 0;
  std::deque<Open> open_;
  std::optional<core::Error> broken_;  // why nothing can be done any more
};

}  // namespace trainyard::parallel
