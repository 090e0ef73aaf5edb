#include "trainyard/parallel/collectives/measured_all_reduce.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/machine/user_cache.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/algorithms/algorithm_choice.h"
#include "trainyard/parallel/collectives/algorithms/configured_algorithm.h"
#include "trainyard/parallel/collectives/all_reduce_spec.h"
#include "trainyard/parallel/collectives/all_reduce_timing.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/collectives/shared_memory/shared_memory_communicator.h"

namespace trainyard::parallel {
namespace {

using core::Error, core::ErrorCode;
using Clock = std::chrono::steady_clock;
using Communicators = std::vector<std::unique_ptr<core::Communicator>>;

constexpr const char* kAnyOrder = "any order";  // how descriptions begin
// From this size on slow algorithms are not measured further: with smaller tensors latency decides.
constexpr int64_t kFirstOfBandwidth = 1 << 20;

// The communicators of one measurement, and what is exchanged by them.
class Exchanges {
 public:
  Exchanges(const std::shared_ptr<ProcessEngine>& engine, int replicas, const AllReduceMeasuring& measuring) {
    const auto processes = make_communicator_of_processes(engine);
    const RankLayout layout = gather_layout(*processes, replicas, measuring.machine);
    // With numbers of another type on the wire, the chain is what runs without a spec: others would round otherwise.
    result_.in_rank_order = measuring.wire ? std::vector<std::string>{"chain"} : candidates_in_rank_order(layout);
    if (measuring.order == AllReduceOrder::kAny) result_.other = candidates_of_specs(layout);
    if (!measuring.wire) {
      shared_ = make_process_communicators(engine, replicas, kDeadline, choose_algorithm, HostExchange::kSharedMemory,
                                           measuring.machine);
      if (dynamic_cast<SharedMemoryCommunicator*>(shared_[0].get()) == nullptr) shared_.clear();
    }
    const auto add = [&](const std::string& name, AllReduceOrder order) {
      algorithms_->choices.push_back(choice_by_size(ranges_of(name, order, measuring.wire)));
      names_.push_back(name);
    };
    for (const std::string& name : result_.in_rank_order) add(name, AllReduceOrder::kOfRanks);
    for (const std::string& name : result_.other) {
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) add(name, AllReduceOrder::kAny);
    }
    if (!shared_.empty()) result_.in_rank_order.insert(result_.in_rank_order.begin(), kSharedMemoryName);
    messages_ = make_process_communicators(
        engine, replicas, kDeadline,
        [algorithms = algorithms_](const CollectiveRequest& request) -> const CollectiveAlgorithm& {
          return algorithms->choices[algorithms->current](request);
        },
        HostExchange::kMessages, measuring.machine);
  }

  MeasuredAllReduces& result() { return result_; }
  size_t replicas() const { return messages_.size(); }
  core::Communicator& any(size_t replica) { return shared_.empty() ? *messages_[replica] : *shared_[replica]; }
  void abort(const Error& error) { messages_[0]->abort(error); }

  // Returns the operations that reduce `tensor` by each algorithm, the one of the shared memory first.
  std::vector<TimedOperation> operations(size_t replica, const at::Tensor& tensor) {
    std::vector<TimedOperation> all;
    if (!shared_.empty()) {
      all.push_back({kSharedMemoryName, [&self = *shared_[replica], tensor](int64_t times) {
                       return time_each(
                           times, [&] { self.barrier(); }, [&] { self.all_reduce(tensor, core::ReduceOp::kSum); });
                     }});
    }
    for (size_t a = 0; a < names_.size(); ++a) {
      all.push_back({names_[a], [this, a, &self = *messages_[replica], tensor](int64_t times) {
                       self.barrier();  // all replicas of this process have done with the one before
                       algorithms_->current = a;
                       return time_each(
                           times, [&] { self.barrier(); }, [&] { self.all_reduce(tensor, core::ReduceOp::kSum); });
                     }});
    }
    return all;
  }

 private:
  static constexpr std::chrono::milliseconds kDeadline = std::chrono::minutes(2);

  // Those of messages. The engine's thread may use them until it has ended a collective that has failed.
  struct Algorithms {
    std::vector<AlgorithmChoice> choices;
    std::atomic<size_t> current = 0;  // the one that is measured
  };

  MeasuredAllReduces result_;
  std::vector<std::string> names_;  // of algorithms_
  const std::shared_ptr<Algorithms> algorithms_ = std::make_shared<Algorithms>();
  Communicators shared_, messages_;  // a replica each; shared_: empty where there is none
};

// The measurement of one rank. All decisions follow from numbers that all ranks have agreed on.
class RankMeasurement {
 public:
  RankMeasurement(Exchanges& exchanges, size_t replica, const AllReduceMeasuring& measuring)
      : exchanges_(exchanges), self_(exchanges.any(replica)), replica_(replica), measuring_(measuring) {}

  std::vector<AllReduceTime> run() {
    const int64_t most = measuring_.sizes.back() / kFloat;
    const at::Tensor memory = exchanged_zeros(self_, most);
    for (const int64_t bytes : measuring_.sizes) {
      if (last_bytes_ > 0) give_up_slow_ones(bytes);
      std::vector<TimedOperation> operations = exchanges_.operations(replica_, memory.narrow(0, 0, bytes / kFloat));
      std::erase_if(operations, [&](const TimedOperation& each) { return given_up_.contains(each.name); });
      if (operations.empty() || spent_ >= measuring_.seconds || !measure(bytes, operations)) break;
    }
    return std::move(times_);
  }

 private:
  static constexpr int64_t kFloat = sizeof(float);
  static constexpr int64_t kLeastTurns = 3, kMostTurns = 15;

  // Returns the seconds of each operation, those of the slowest rank, and notes the time that has passed.
  std::vector<std::vector<double>> agreed(const std::vector<std::vector<double>>& own) {
    std::vector<double> flat;
    for (const auto& each : own) flat.insert(flat.end(), each.begin(), each.end());
    flat.push_back(core::seconds_since(begin_));
    const std::vector<double> all = slowest_of_ranks(self_, flat);
    spent_ = all.back();
    std::vector<std::vector<double>> seconds;
    auto next = all.begin();
    for (const auto& each : own) {
      seconds.emplace_back(next, next + static_cast<std::ptrdiff_t>(each.size()));
      next += static_cast<std::ptrdiff_t>(each.size());
    }
    return seconds;
  }

  // Returns false when there was no time for a turn of all.
  bool measure(int64_t bytes, const std::vector<TimedOperation>& operations) {
    const std::vector<std::vector<double>> first = agreed(time_in_turns(operations, 1, 1));  // warms up
    double turn = 0;
    for (const auto& each : first) turn += each[0];
    if (spent_ + turn > measuring_.seconds) return false;
    // Short ones run several times in a turn, so that agreeing takes the smaller part of the time.
    const int64_t runs =
        std::clamp(static_cast<int64_t>(200e-6 * static_cast<double>(operations.size()) / std::max(turn, 1e-9)),
                   int64_t{1}, int64_t{20});
    const double end = std::min(measuring_.seconds, spent_ + measuring_.seconds / kSizesAtOnce);
    std::vector<std::vector<double>> seconds(operations.size());
    for (int64_t turns = 0; turns < kMostTurns; ++turns) {
      if (turns > 0 && spent_ + turn > (turns < kLeastTurns ? measuring_.seconds : end)) break;
      const double before = spent_;
      const auto more = agreed(time_in_turns(operations, runs, runs));
      for (size_t i = 0; i < operations.size(); ++i) {
        seconds[i].insert(seconds[i].end(), more[i].begin(), more[i].end());
      }
      turn = spent_ - before;
    }
    last_.clear();
    for (size_t i = 0; i < operations.size(); ++i) {
      const double median = median_of(seconds[i]);
      last_[operations[i].name] = median;
      times_.push_back({.bytes = bytes, .algorithm = operations[i].name, .seconds = median});
    }
    last_bytes_ = bytes;
    return true;
  }

  void give_up_slow_ones(int64_t bytes) {
    double fastest = std::numeric_limits<double>::infinity(), all = 0;
    for (const auto& [name, seconds] : last_) fastest = std::min(fastest, seconds);
    for (const auto& [name, seconds] : last_) all += seconds;
    const double growth = static_cast<double>(bytes) / static_cast<double>(last_bytes_);
    // On a slow network bytes decide at any size, and there is no time for all.
    const bool hurried = spent_ + 2 * growth * all > measuring_.seconds;
    if (last_bytes_ < kFirstOfBandwidth && !hurried) return;
    for (const auto& [name, seconds] : last_) {
      if (seconds > measuring_.give_up_ratio * fastest) given_up_[name] = seconds;
    }
  }

  static constexpr double kSizesAtOnce = 4;

  Exchanges& exchanges_;
  core::Communicator& self_;
  const size_t replica_;
  const AllReduceMeasuring& measuring_;
  const Clock::time_point begin_ = Clock::now();
  double spent_ = 0;  // seconds
  std::vector<AllReduceTime> times_;
  std::map<std::string, double> last_, given_up_;  // seconds of the last size, by algorithm
  int64_t last_bytes_ = 0;
};

// Returns "2*1 + 4" for two processes of one replica and one of four.
std::string describe_machine(const std::vector<int>& replicas) {
  std::vector<std::string> runs;
  for (size_t begin = 0, end = 0; begin < replicas.size(); begin = end) {
    while (end < replicas.size() && replicas[end] == replicas[begin]) ++end;
    runs.push_back(end - begin == 1 ? std::to_string(replicas[begin])
                                    : fmt::format("{}*{}", end - begin, replicas[begin]));
  }
  return fmt::format("{}", fmt::join(runs, " + "));
}

std::string describe_layout(const RankLayout& layout) {
  std::map<int, std::vector<int>> machines;
  for (int p = 0; p < layout.processes(); ++p) {
    const auto process = static_cast<size_t>(p);
    machines[layout.hosts[process]].push_back(layout.first_ranks[process + 1] - layout.first_ranks[process]);
  }
  std::vector<std::string> texts;
  for (const auto& [host, replicas] : machines) texts.push_back(describe_machine(replicas));
  return fmt::format("{} ranks on {} machine{}: {}", layout.ranks(), machines.size(), machines.size() == 1 ? "" : "s",
                     fmt::join(texts, " | "));
}

std::string one_line(std::string text) {
  for (char& each : text) {
    if (static_cast<unsigned char>(each) < ' ') each = ' ';
  }
  return text;
}

bool is_shared_memory(const std::string& spec) {
  return spec == kSharedMemoryName;
}

// Returns whether a kept spec may be used. On rank 0.
bool may_use(const std::string& spec, const AllReduceMeasuring& measuring, const RankLayout& layout) {
  if (measuring.order == AllReduceOrder::kAny)
    return spec == kDefaultName || fits_layout(spec, measuring.order, layout);
  return is_shared_memory(spec) || fits_layout(spec, measuring.order, layout);
}

}  // namespace

MeasuredAllReduces measure_all_reduces(const std::shared_ptr<ProcessEngine>& engine, int replicas,
                                       const AllReduceMeasuring& measuring) {
  Exchanges exchanges(engine, replicas, measuring);
  std::vector<AllReduceTime> times;
  std::mutex mutex;
  std::optional<Error> failure;
  const auto measure = [&](size_t replica) {
    try {
      std::vector<AllReduceTime> own = RankMeasurement(exchanges, replica, measuring).run();
      if (replica == 0) times = std::move(own);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      if (!failure) exchanges.abort(error);
      if (!failure) failure = error;
    }
  };
  {
    std::vector<core::Thread> threads;
    for (size_t r = 1; r < exchanges.replicas(); ++r) {
      threads.emplace_back(core::ThreadOptions{.name = fmt::format("replica {}", r)}, [&measure, r] { measure(r); });
    }
    measure(0);
    for (core::Thread& thread : threads) thread.join();
  }
  if (failure) throw Error(*failure);
  MeasuredAllReduces result = exchanges.result();
  result.times = std::move(times);
  return result;
}

std::string describe_measuring(const std::shared_ptr<ProcessEngine>& engine, int replicas,
                               const AllReduceMeasuring& measuring) {
  const auto processes = make_communicator_of_processes(engine);
  const RankLayout layout = gather_layout(*processes, replicas, measuring.machine);
  std::vector<std::string> kinds = gather_texts(*processes, core::machine_kind());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return one_line(fmt::format(
      "{}, {}, {}{}; {}", measuring.order == AllReduceOrder::kAny ? kAnyOrder : "order of ranks",
      describe_layout(layout), measuring.transport.empty() ? "messages" : measuring.transport,
      measuring.wire ? fmt::format(", {} on the wire", c10::toString(*measuring.wire)) : "", fmt::join(kinds, " | ")));
}

AllReduceOrder order_of(const std::string& description) {
  return description.starts_with(kAnyOrder) ? AllReduceOrder::kAny : AllReduceOrder::kOfRanks;
}

AgreedAllReduce agree_on_all_reduce(const std::shared_ptr<ProcessEngine>& engine, int replicas,
                                    const AllReduceMeasuring& measuring, AllReduceChoices& kept) {
  AgreedAllReduce agreed{.description = describe_measuring(engine, replicas, measuring)};
  const auto processes = make_communicator_of_processes(engine);
  const RankLayout layout = gather_layout(*processes, replicas, measuring.machine);
  std::string own;
  if (processes->rank() == 0) {
    const auto known = kept.find(agreed.description);
    if (known && may_use(known->spec, measuring, layout)) own = known->spec;
  }
  agreed.spec = text_of_first(*processes, own);
  agreed.was_kept = !agreed.spec.empty();
  if (agreed.was_kept) return agreed;
  const MeasuredAllReduces measured = measure_all_reduces(engine, replicas, measuring);
  const auto choice = choose_by_times(measured, measuring.order);
  agreed.measured_now = choice.has_value();
  // Without a time the first one runs, as it does without a measurement.
  agreed.spec = choice                                    ? choice->spec
                : measuring.order == AllReduceOrder::kAny ? kDefaultName
                                                          : measured.in_rank_order.front();
  if (choice && processes->rank() == 0) kept.keep(agreed.description, *choice);
  // The times are the same on all processes already. Rank 0's word makes sure of what follows from them.
  agreed.spec = text_of_first(*processes, agreed.spec);
  return agreed;
}

std::vector<std::unique_ptr<core::Communicator>> make_measured_communicators(
    const std::shared_ptr<ProcessEngine>& engine, int replicas, std::chrono::milliseconds deadline,
    const std::string& spec, const std::string& machine) {
  if (is_shared_memory(spec))
    return make_process_communicators(engine, replicas, deadline, choose_algorithm, HostExchange::kSharedMemory,
                                      machine);
  return make_process_communicators(engine, replicas, deadline,
                                    choice_by_size(ranges_of(spec, AllReduceOrder::kOfRanks)), HostExchange::kMessages,
                                    machine);
}

}  // namespace trainyard::parallel
