#include "trainyard/parallel/collectives/threads/thread_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/collectives/plan/collective_call.h"
#include "trainyard/parallel/collectives/plan/plan_run.h"

namespace trainyard::parallel {
namespace {

using core::Error;
using core::ErrorCode;
using core::ReduceOp;
using Call = CollectiveCall;
using Clock = std::chrono::steady_clock;

// Where the ranks of one communicator meet. A collective has two meetings. In the first, ranks wait for each other: it
// can be aborted or time out, and then no rank passes it. Once it is complete all ranks pass it, do their share of the
// work on each other's tensors, which cannot block, and meet again: that wait is short, and nothing cuts it off,
// because a rank that left early would change a tensor that a peer still reads.
class Group {
 public:
  explicit Group(int size) : calls_(size) {}

  int size() const { return static_cast<int>(calls_.size()); }

  // Returns all ranks' calls once all have come. Adds to `waiting_seconds` how long that took.
  std::vector<Call> meet(int rank, Call call, std::chrono::milliseconds deadline, double& waiting_seconds) {
    const Clock::time_point begin = Clock::now();
    std::unique_lock lock(mutex_);
    check_usable();
    const uint64_t meeting = meetings_;
    const std::string operation = describe(call);
    calls_[rank] = std::move(call);
    present_[rank] = true;
    if (std::find(present_.begin(), present_.end(), false) == present_.end()) {
      complete();
    } else {
      const auto over = [&] { return meetings_ != meeting || aborted_ || timeout_; };
      // "For ever" as milliseconds::max() would overflow when it is added to now.
      const auto longest = std::min<std::chrono::milliseconds>(deadline, std::chrono::hours(24 * 365));
      if (!changed_.wait_for(lock, longest, over)) give_up(rank, operation, deadline);
      if (meetings_ == meeting) {
        if (timeout_) throw *timeout_;
        throw *aborted_;
      }
    }
    // The verdict and the time stay until the next meeting is complete, which needs this rank.
    waiting_seconds += std::max(0.0, std::chrono::duration<double>(completed_at_ - begin).count());
    if (verdict_) throw *verdict_;
    return calls_;
  }

  void meet_again() {
    std::unique_lock lock(mutex_);
    const uint64_t meeting = second_meetings_;
    if (++second_arrivals_ == size()) {
      second_arrivals_ = 0;
      ++second_meetings_;
      release_tensors();
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return second_meetings_ != meeting; });
  }

  // Ends all first meetings, now and later, with `error`. The first error stays.
  void abort(const Error& error) {
    {
      std::lock_guard lock(mutex_);
      if (aborted_) return;
      aborted_ = Error(ErrorCode::kPeerFailed, error.detail());
    }
    changed_.notify_all();
  }

 private:
  void check_usable() const {
    if (aborted_) throw *aborted_;
    if (timeout_) throw Error(ErrorCode::kPeerFailed, timeout_->detail());
  }

  // Nothing is kept alive between calls.
  void release_tensors() {
    for (Call& call : calls_) call.tensor.reset();
  }

  void complete() {
    verdict_ = disagreement(calls_);
    if (verdict_) release_tensors();
    std::fill(present_.begin(), present_.end(), false);
    completed_at_ = Clock::now();
    ++meetings_;
    changed_.notify_all();
  }

  // All who wait now time out together; who comes later finds a failed peer.
  void give_up(int rank, const std::string& operation, std::chrono::milliseconds deadline) {
    std::vector<int> missing;
    for (int other = 0; other < size(); ++other) {
      if (!present_[other]) missing.push_back(other);
    }
    timeout_ = Error(ErrorCode::kTimeout, {.problem = fmt::format("rank {} waited {:.3g} s for its peers", rank,
                                                                  std::chrono::duration<double>(deadline).count()),
                                           .where = operation,
                                           .actual = fmt::format("no call from rank {}", fmt::join(missing, ", ")),
                                           .remedy = "look for what stopped them, or raise the deadline"});
    release_tensors();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  std::vector<bool> present_ = std::vector<bool>(calls_.size(), false);
  uint64_t meetings_ = 0;
  Clock::time_point completed_at_;  // of the last complete meeting
  std::optional<Error> verdict_;    // of the last complete meeting
  std::optional<Error> timeout_;
  std::optional<Error> aborted_;
  int second_arrivals_ = 0;
  uint64_t second_meetings_ = 0;
};

class ThreadCommunicator final : public core::Communicator {
 public:
  ThreadCommunicator(int rank, std::shared_ptr<Group> group) : rank_(rank), group_(std::move(group)) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void all_reduce(at::Tensor tensor, ReduceOp op) override { run(Call::all_reduce(tensor, op)); }
  void broadcast(at::Tensor tensor, int root) override { run(Call::broadcast(tensor, root, size())); }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    return run(Call::all_gather(tensor)).unbind(0);
  }
  void barrier() override { meet({.kind = Call::Kind::kBarrier}); }

  void abort(const Error& error) override { group_->abort(error); }
  double waiting_seconds() const override { return waiting_seconds_; }

 private:
  std::vector<Call> meet(Call call) { return group_->meet(rank_, std::move(call), deadline(), waiting_seconds_); }

  // The call's two meetings, with this rank's share of the work between them. A rank whose work fails still meets the
  // others. Returns all_gather's result, and an undefined tensor of the others.
  at::Tensor run(Call call) {
    std::exception_ptr failure;
    at::Tensor gathered;
    {
      const std::vector<Call> calls = meet(std::move(call));
      try {
        CollectiveRequest request = request_of(calls[0], {.first_ranks = {0, size()}});
        request.workers = size();
        request.worker = rank_;
        PlanMemory memory = memory_of(calls, size());
        gathered = memory.gathered;
        PlanRun(choose_algorithm(request).plan(request), std::move(memory)).run_locally();
      } catch (...) {
        failure = std::current_exception();
      }
    }
    group_->meet_again();
    if (failure) std::rethrow_exception(failure);
    return gathered;
  }

  const int rank_;
  const std::shared_ptr<Group> group_;
  double waiting_seconds_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<core::Communicator>> make_thread_communicators(int size) {
  if (size < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = "a group of replicas has no members", .expected = "at least 1", .actual = std::to_string(size)});
  }
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<core::Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank) communicators.push_back(std::make_unique<ThreadCommunicator>(rank, group));
  return communicators;
}

}  // namespace trainyard::parallel
