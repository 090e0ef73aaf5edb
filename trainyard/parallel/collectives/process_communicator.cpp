#include "trainyard/parallel/collectives/process_communicator.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/system/host_name.h"
#include "trainyard/parallel/collectives/plan/collective_call.h"
#include "trainyard/parallel/collectives/plan/tensor_place.h"
#include "trainyard/parallel/collectives/shared_memory/shared_memory_communicator.h"

namespace trainyard::parallel {
namespace {

using core::Error;
using core::ErrorCode;
using std::chrono::milliseconds;
using Call = CollectiveCall;
using Clock = std::chrono::steady_clock;

constexpr size_t kLongestName = 255;  // of a machine, and of any text that gather_texts() takes

// Where the replicas of this process meet for the collectives of one group. The last one to come hands the collective
// to the engine. What changes does so under the engine's mutex.
class ReplicaMeeting {
 public:
  struct Collective {
    std::vector<Call> calls;
    std::vector<bool> present;
    std::shared_ptr<ProcessEngine::Job> job;  // once all are present
  };

  ReplicaMeeting(std::shared_ptr<ProcessEngine> engine, RankLayout layout, AlgorithmChoice choose)
      : engine_(std::move(engine)),
        layout_(std::move(layout)),
        choose_(std::move(choose)),
        channel_(engine_->next_channel()) {
    next_.resize(static_cast<size_t>(layout_.local()), 0);
  }

  const RankLayout& layout() const { return layout_; }
  ProcessEngine& engine() const { return *engine_; }

  // Returns the collective that is this replica's next one.
  std::shared_ptr<Collective> come(int replica, Call call) {
    engine_->throw_if_failed();
    std::shared_ptr<Collective> collective;
    uint64_t sequence = 0;
    {
      const std::lock_guard lock(engine_->mutex());
      if (broken_) throw Error(ErrorCode::kPeerFailed, broken_->detail());
      const auto own = static_cast<size_t>(replica);
      sequence = next_[own]++;
      while (sequence - first_open_ >= open_.size()) open_.push_back(std::make_shared<Collective>());
      collective = open_[sequence - first_open_];
      if (collective->calls.empty()) {
        collective->calls.resize(next_.size());
        collective->present.resize(next_.size(), false);
      }
      collective->calls[own] = std::move(call);
      collective->present[own] = true;
      if (std::count(collective->present.begin(), collective->present.end(), false) > 0) return collective;
      // All have come to this one, and so to those before it.
      open_.pop_front();
      ++first_open_;
    }
    auto job = engine_->submit(std::make_shared<CollectiveOperation>(layout_, sequence, tag_of(sequence),
                                                                     std::move(collective->calls), choose_));
    {
      const std::lock_guard lock(engine_->mutex());
      collective->job = std::move(job);
    }
    engine_->notify();
    return collective;
  }

  // Call it under the engine's mutex.
  static bool finished(const Collective& collective) { return collective.job != nullptr && collective.job->finished; }

  // Returns true when wait() would not block.
  bool poll(const Collective& collective) {
    try {
      return engine_->wait_until(Clock::now(), [&] { return finished(collective); });
    } catch (const Error&) {
      return true;
    }
  }

  // Returns all_gather's result, and an undefined tensor of the others. Adds to `waiting_seconds` how much of the wait
  // was for calls of other ranks.
  at::Tensor wait(int replica, const std::shared_ptr<Collective>& collective, const std::string& operation,
                  milliseconds deadline, double& waiting_seconds) {
    const Clock::time_point begin = Clock::now();
    const auto over = [&] { return finished(*collective); };
    const auto longest = std::min<milliseconds>(deadline, std::chrono::hours(24 * 365));
    if (!engine_->wait_until(Clock::now() + longest, over)) give_up(replica, *collective, operation, deadline);
    const Clock::time_point agreed = std::min(collective->job->operation->agreed_at(), Clock::now());
    waiting_seconds += std::max(0.0, core::seconds_between(begin, agreed));
    const std::optional<Error>& refusal = collective->job->operation->refusal();
    if (!refusal) return collective->job->operation->gathered();
    const std::lock_guard lock(engine_->mutex());
    if (!broken_) broken_ = refusal;
    throw Error(*refusal);
  }

 private:
  // Several collectives of a group are on their way at a time, and each message belongs to one of them.
  int tag_of(uint64_t sequence) const {
    constexpr int kAtOnce = 256;
    static_assert(core::Communicator::kMostStarted < kAtOnce);
    return (channel_ * kAtOnce + static_cast<int>(sequence % kAtOnce)) * CollectiveOperation::kTags;
  }

  [[noreturn]] void give_up(int replica, const Collective& collective, const std::string& operation,
                            milliseconds deadline) {
    std::string missing;
    {
      const std::lock_guard lock(engine_->mutex());
      std::vector<int> absent;
      for (int r = 0; r < layout_.local(); ++r) {
        if (!collective.present[static_cast<size_t>(r)]) absent.push_back(layout_.first() + r);
      }
      if (!absent.empty()) {
        missing = fmt::format("no call from rank {}", fmt::join(absent, ", "));
      } else {
        const int peer = collective.job == nullptr ? -1 : collective.job->operation->waits_for();
        missing =
            peer >= 0 && peer < layout_.process
                ? fmt::format("nothing from rank {} or before", layout_.first_ranks[static_cast<size_t>(peer) + 1] - 1)
                : fmt::format("nothing from rank {} or behind",
                              peer < 0 ? layout_.end() : layout_.first_ranks[static_cast<size_t>(peer)]);
      }
    }
    const Error error(ErrorCode::kTimeout,
                      {.problem = fmt::format("rank {} waited {:.3g} s for its peers", layout_.first() + replica,
                                              std::chrono::duration<double>(deadline).count()),
                       .where = operation,
                       .actual = missing,
                       .remedy = "look for what stopped them, or raise the deadline"});
    engine_->fail(error);
    throw error;
  }

  const std::shared_ptr<ProcessEngine> engine_;
  const RankLayout layout_;
  const AlgorithmChoice choose_;
  const int channel_;
  std::vector<uint64_t> next_;  // the number of each replica's next collective
  std::deque<std::shared_ptr<Collective>> open_;
  uint64_t first_open_ = 0;
  std::optional<Error> broken_;
};

class ProcessCommunicator final : public core::Communicator {
 public:
  // `in_rank_order`: all-reduces add up in the order of ranks.
  ProcessCommunicator(int replica, std::shared_ptr<ReplicaMeeting> meeting, bool in_rank_order)
      : replica_(replica), meeting_(std::move(meeting)), in_rank_order_(in_rank_order) {}

  int rank() const override { return meeting_->layout().first() + replica_; }
  int size() const override { return meeting_->layout().ranks(); }

  void all_reduce(at::Tensor tensor, core::ReduceOp op) override { run(Call::all_reduce(tensor, op)); }
  std::unique_ptr<core::PendingCollective> start_all_reduce(at::Tensor tensor, core::ReduceOp op) override;
  bool progresses_in_background() const override { return meeting_->layout().processes() > 1; }
  void broadcast(at::Tensor tensor, int root) override { run(Call::broadcast(tensor, root, size())); }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    const at::Tensor all = run(Call::all_gather(tensor));
    // The replicas here share it, and each may write to what it gets.
    return (meeting_->layout().local() == 1 ? all : all.clone()).unbind(0);
  }
  void barrier() override { run({.kind = Call::Kind::kBarrier}); }
  std::vector<at::Tensor> peer_views(const at::Tensor& tensor) override {
    const bool one_process = meeting_->layout().processes() == 1;
    return one_process && in_rank_order_ ? views_within_process(*this, tensor) : std::vector<at::Tensor>();
  }

  void abort(const Error& error) override { meeting_->engine().fail({ErrorCode::kPeerFailed, error.detail()}); }
  double waiting_seconds() const override { return waiting_seconds_; }

 private:
  using Collective = ReplicaMeeting::Collective;

  class Started final : public core::PendingCollective {
   public:
    Started(ProcessCommunicator& communicator, std::shared_ptr<Collective> collective, std::string operation)
        : communicator_(communicator), collective_(std::move(collective)), operation_(std::move(operation)) {}

    bool poll() override { return collective_ == nullptr || communicator_.meeting_->poll(*collective_); }
    void wait() override {
      if (const auto collective = std::exchange(collective_, nullptr)) communicator_.wait(collective, operation_);
    }

   private:
    ProcessCommunicator& communicator_;
    std::shared_ptr<Collective> collective_;  // null once it was waited for
    const std::string operation_;
  };

  at::Tensor run(Call call) {
    const std::string operation = describe(call);
    return wait(meeting_->come(replica_, std::move(call)), operation);
  }

  at::Tensor wait(const std::shared_ptr<Collective>& collective, const std::string& operation) {
    std::erase(started_, collective);
    return meeting_->wait(replica_, collective, operation, deadline(), waiting_seconds_);
  }

  const int replica_;
  const std::shared_ptr<ReplicaMeeting> meeting_;
  const bool in_rank_order_;
  std::vector<std::shared_ptr<Collective>> started_;  // and not waited for
  double waiting_seconds_ = 0;
};

std::unique_ptr<core::PendingCollective> ProcessCommunicator::start_all_reduce(at::Tensor tensor, core::ReduceOp op) {
  {
    // Collectives whose wait() was never called may be done.
    const std::lock_guard lock(meeting_->engine().mutex());
    std::erase_if(started_, [](const auto& each) { return ReplicaMeeting::finished(*each); });
  }
  Call call = Call::all_reduce(tensor, op);
  std::string operation = describe(call);
  if (started_.size() >= kMostStarted) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "too many collectives are on their way",
                                              .where = fmt::format("rank {}, {}", rank(), operation),
                                              .expected = fmt::format("at most {}", kMostStarted),
                                              .actual = fmt::format("{} and this one", started_.size()),
                                              .remedy = "wait for some of them first"});
  }
  started_.push_back(meeting_->come(replica_, std::move(call)));
  return std::make_unique<Started>(*this, started_.back(), std::move(operation));
}

// Returns true for choose_algorithm() itself, which the exchange through shared memory replaces.
bool is_default(const AlgorithmChoice& choose) {
  const auto* const function = choose.target<const CollectiveAlgorithm& (*)(const CollectiveRequest&)>();
  return function != nullptr && *function == choose_algorithm;
}

std::vector<std::unique_ptr<core::Communicator>> communicators_of(const std::shared_ptr<ProcessEngine>& engine,
                                                                  RankLayout layout, milliseconds deadline,
                                                                  const AlgorithmChoice& choose) {
  // Throws where the layout does not fit.
  (void)choose({.kind = Call::Kind::kAllReduce, .layout = layout});
  const auto meeting = std::make_shared<ReplicaMeeting>(engine, std::move(layout), choose);
  std::vector<std::unique_ptr<core::Communicator>> communicators;
  for (int r = 0; r < meeting->layout().local(); ++r) {
    communicators.push_back(std::make_unique<ProcessCommunicator>(r, meeting, is_default(choose)));
    communicators.back()->set_deadline(deadline);
  }
  return communicators;
}

}  // namespace

std::vector<std::string> gather_texts(core::Communicator& communicator, const std::string& text) {
  const at::Tensor own = at::full({kLongestName + 1}, 0, at::kByte);
  std::copy_n(text.data(), std::min<size_t>(text.size(), kLongestName), static_cast<char*>(own.mutable_data_ptr()));
  std::vector<std::string> texts;
  for (const at::Tensor& each : communicator.all_gather(own)) {
    texts.emplace_back(static_cast<const char*>(each.const_data_ptr()));
  }
  return texts;
}

RankLayout gather_layout(core::Communicator& processes, int replicas, const std::string& machine) {
  RankLayout layout{.process = processes.rank(), .first_ranks = {0}, .hosts = {}};
  for (const at::Tensor& each : processes.all_gather(at::full({1}, replicas, at::kLong))) {
    layout.first_ranks.push_back(layout.first_ranks.back() + static_cast<int>(each.item<int64_t>()));
  }
  const std::vector<std::string> machines = gather_texts(processes, machine.empty() ? core::host_name() : machine);
  for (const std::string& name : machines) {
    layout.hosts.push_back(static_cast<int>(std::find(machines.begin(), machines.end(), name) - machines.begin()));
  }
  return layout;
}

std::unique_ptr<core::Communicator> make_communicator_of_processes(const std::shared_ptr<ProcessEngine>& engine,
                                                                   milliseconds deadline) {
  std::vector<int> first_ranks(static_cast<size_t>(engine->processes()) + 1);
  std::iota(first_ranks.begin(), first_ranks.end(), 0);
  RankLayout layout{.process = engine->process(), .first_ranks = std::move(first_ranks), .hosts = {}};
  return std::move(communicators_of(engine, std::move(layout), deadline, choose_algorithm)[0]);
}

std::vector<std::unique_ptr<core::Communicator>> make_process_communicators(
    const std::shared_ptr<ProcessEngine>& engine, int replicas, milliseconds deadline, const AlgorithmChoice& choose,
    HostExchange host, const std::string& machine) {
  if (replicas < 1) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a process that trains has no replicas",
                                              .expected = "at least 1",
                                              .actual = std::to_string(replicas)});
  }
  const auto processes = make_communicator_of_processes(engine, deadline);
  RankLayout layout = gather_layout(*processes, replicas, machine);
  if (host == HostExchange::kSharedMemory && engine->processes() > 1 && is_default(choose)) {
    if (const auto group = SharedGroup::connect(*engine, *processes, layout)) {
      std::vector<std::unique_ptr<core::Communicator>> communicators;
      for (int r = 0; r < replicas; ++r) {
        communicators.push_back(std::make_unique<SharedMemoryCommunicator>(r, engine, group));
        communicators.back()->set_deadline(deadline);
      }
      return communicators;
    }
  }
  return communicators_of(engine, std::move(layout), deadline, choose);
}

std::string text_of_first(core::Communicator& communicator, const std::string& text) {
  const at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  communicator.broadcast(length, 0);
  const at::Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
  auto* const memory = static_cast<char*>(bytes.mutable_data_ptr());
  if (communicator.rank() == 0) std::copy(text.begin(), text.end(), memory);
  communicator.broadcast(bytes, 0);
  return {memory, static_cast<size_t>(bytes.numel())};
}

std::vector<std::string> machines_of(core::Communicator& communicator) {
  return gather_texts(communicator, core::host_name());
}

}  // namespace trainyard::parallel
