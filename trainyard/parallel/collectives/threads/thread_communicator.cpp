#include "trainyard/parallel/collectives/threads/thread_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/collectives/plan/collective_call.h"
#include "trainyard/parallel/collectives/plan/plan_run.h"
#include "trainyard/parallel/collectives/plan/tensor_place.h"
#include "trainyard/parallel/collectives/threads/thread_transport.h"

namespace trainyard::parallel {
namespace {

using core::Error;
using core::ErrorCode;
using core::ReduceOp;
using Call = CollectiveCall;
using Clock = std::chrono::steady_clock;

// Where the ranks of one communicator meet. A collective has two meetings. In the first, ranks wait for each other: it
// can be aborted or time out, and then no rank passes it. Once it is complete all ranks pass it, do their share of the
// work on each other's tensors, for which they wait for no other call, and meet again: that wait is short, and nothing
// cuts it off, because a rank that left early would change a tensor that a peer still reads.
class Group {
 public:
  // `with_messages`: ranks exchange messages in a collective.
  Group(int size, bool with_messages) : calls_(size), with_messages_(with_messages) {}

  // What the ranks of a collective share.
  struct Meeting {
    std::vector<Call> calls;
    uint64_t number = 0;
    std::shared_ptr<ThreadMessages> messages;  // null without messages
  };

  int size() const { return static_cast<int>(calls_.size()); }

  // Returns all ranks' calls once all have come. Adds to `waiting_seconds` how long that took.
  Meeting meet(int rank, Call call, std::chrono::milliseconds deadline, double& waiting_seconds) {
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
    waiting_seconds += std::max(0.0, core::seconds_between(begin, completed_at_));
    if (verdict_) throw *verdict_;
    return {calls_, meetings_, messages_};
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
    if (with_messages_) messages_ = std::make_shared<ThreadMessages>(size());
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
  const bool with_messages_;
  std::vector<bool> present_ = std::vector<bool>(calls_.size(), false);
  uint64_t meetings_ = 0;
  Clock::time_point completed_at_;            // of the last complete meeting
  std::optional<Error> verdict_;              // of the last complete meeting
  std::shared_ptr<ThreadMessages> messages_;  // of the last complete meeting
  std::optional<Error> timeout_;
  std::optional<Error> aborted_;
  int second_arrivals_ = 0;
  uint64_t second_meetings_ = 0;
};

Error error_of(const std::exception& error) {
  if (const auto* const ours = dynamic_cast<const Error*>(&error)) return *ours;
  return {ErrorCode::kInternal, {.problem = "a collective of threads has failed", .actual = error.what()}};
}

// The layout in which each thread is a process of its own, all on one machine.
RankLayout layout_of_threads(int rank, int size) {
  RankLayout layout{.process = rank, .hosts = std::vector<int>(static_cast<size_t>(size), 0)};
  layout.first_ranks.resize(static_cast<size_t>(size) + 1);
  std::iota(layout.first_ranks.begin(), layout.first_ranks.end(), 0);
  return layout;
}

class ThreadCommunicator final : public core::Communicator {
 public:
  ThreadCommunicator(int rank, std::shared_ptr<Group> group, AlgorithmChoice choose)
      : rank_(rank), group_(std::move(group)), choose_(std::move(choose)) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void all_reduce(at::Tensor tensor, ReduceOp op) override { run(Call::all_reduce(tensor, op)); }
  void broadcast(at::Tensor tensor, int root) override { run(Call::broadcast(tensor, root, size())); }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    return run(Call::all_gather(tensor)).unbind(0);
  }
  void barrier() override { meet({.kind = Call::Kind::kBarrier}); }

  std::vector<at::Tensor> peer_views(const at::Tensor& tensor) override {
    return choose_ ? std::vector<at::Tensor>() : views_within_process(*this, tensor);
  }

  void abort(const Error& error) override { group_->abort(error); }
  double waiting_seconds() const override { return waiting_seconds_; }

 private:
  Group::Meeting meet(Call call) { return group_->meet(rank_, std::move(call), deadline(), waiting_seconds_); }

  // The call's two meetings, with this rank's share of the work between them. A rank whose work fails still meets the
  // others. Returns all_gather's result, and an undefined tensor of the others.
  at::Tensor run(Call call) {
    std::exception_ptr failure;
    at::Tensor gathered;
    // Peers may read the memory of this rank's plan until they meet again. The tensors of peers are released before.
    std::optional<PlanRun> plan_run;
    std::shared_ptr<ThreadMessages> messages;
    {
      const Group::Meeting meeting = meet(std::move(call));
      messages = meeting.messages;
      try {
        if (messages != nullptr && meeting.calls[0].kind == Call::Kind::kAllReduce) {
          exchange(meeting, plan_run);
        } else {
          gathered = share_work(meeting.calls);
        }
      } catch (const std::exception& error) {
        failure = std::current_exception();
        if (messages != nullptr) messages->fail(error_of(error));
      }
    }
    group_->meet_again();
    if (failure) std::rethrow_exception(failure);
    return gathered;
  }

  // Does this rank's share of the work on the tensors of all.
  at::Tensor share_work(const std::vector<Call>& calls) {
    CollectiveRequest request = request_of(calls[0], {.first_ranks = {0, size()}});
    request.workers = size();
    request.worker = rank_;
    PlanMemory memory = memory_of(calls, size());
    const at::Tensor gathered = memory.gathered;
    PlanRun(choose_algorithm(request).plan(request), std::move(memory)).run_locally();
    return gathered;
  }

  // Executes this rank's plan of the chosen algorithm, with messages to and from the other threads.
  void exchange(const Group::Meeting& meeting, std::optional<PlanRun>& plan_run) {
    const Call& own = meeting.calls[static_cast<size_t>(rank_)];
    CollectiveRequest request = request_of(own, layout_of_threads(rank_, size()));
    request.number = meeting.number;
    plan_run.emplace(choose_(request).plan(request), memory_of({own}, size()));
    const std::unique_ptr<MessageTransport> transport = meeting.messages->transport(rank_);
    const auto longest = std::min<std::chrono::milliseconds>(deadline(), std::chrono::hours(24 * 365));
    while (!plan_run->complete()) {
      const uint64_t seen = meeting.messages->changes();
      if (const auto error = meeting.messages->failure()) throw Error(ErrorCode::kPeerFailed, error->detail());
      if (plan_run->advance(*transport, 0, /*agreed=*/true)) continue;
      if (meeting.messages->wait_for_change(seen, Clock::now() + longest)) continue;
      throw Error(ErrorCode::kTimeout, {.problem = fmt::format("rank {} waits for messages of its peers", rank_),
                                        .where = describe(own),
                                        .actual = fmt::format("nothing from rank {}", plan_run->waits_for())});
    }
  }

  const int rank_;
  const std::shared_ptr<Group> group_;
  const AlgorithmChoice choose_;  // empty: the ranks divide the work on each other's tensors
  double waiting_seconds_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<core::Communicator>> make_thread_communicators(int size, const AlgorithmChoice& choose) {
  if (size < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.problem = "a group of replicas has no members", .expected = "at least 1", .actual = std::to_string(size)});
  }
  // Throws where the layout does not fit.
  if (choose) (void)choose({.kind = Call::Kind::kAllReduce, .layout = layout_of_threads(0, size)});
  const auto group = std::make_shared<Group>(size, choose != nullptr);
  std::vector<std::unique_ptr<core::Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(rank, group, choose));
  }
  return communicators;
}

}  // namespace trainyard::parallel
