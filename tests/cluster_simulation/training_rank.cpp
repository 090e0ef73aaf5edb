// What a rank of the simulated training does: the calls of the library that a real one makes, in their order
// (frontends/options/device_settings.cpp, train/loop), with numbers whose sums are known.
#include <algorithm>
#include <bit>
#include <thread>
#include <utility>

#include "tests/cluster_simulation/training.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/collectives/algorithms/configured_algorithm.h"
#include "trainyard/parallel/collectives/all_reduce_options.h"
#include "trainyard/parallel/collectives/gradient_buckets.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/collectives/tcp/tcp_transport.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_copy.h"
#include "trainyard/train/checkpoint/checkpoint_queue.h"

namespace trainyard::cluster_simulation {
namespace {

using core::Communicator, core::Error, core::ErrorCode, core::ReduceOp;
using parallel::ProcessEngine, parallel::ProcessGroup;

constexpr const char* kFolder = "/disk/train";

int64_t mixed(uint64_t a, uint64_t b) {
  return static_cast<int64_t>(RandomDraws(a * 0x9e3779b97f4a7c15 + b).next() >> 2);
}

// A small integer, so that float sums are exact in any order.
float value_of(const Job& job, int64_t step, int64_t call, int rank, int64_t element) {
  const uint64_t place =
      static_cast<uint64_t>((step * 64 + call) * 64 + rank) * 100'003 + static_cast<uint64_t>(element);
  return static_cast<float>(static_cast<int64_t>((place * 0x9e3779b97f4a7c15 ^ job.content) >> 40) % 1000);
}

void fill(const Job& job, int64_t step, int64_t call, int rank, const at::Tensor& tensor) {
  auto* const values = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = value_of(job, step, call, rank, i);
}

float expected(const Job& job, int64_t step, int64_t call, ReduceOp op, int64_t element) {
  float result = value_of(job, step, call, 0, element);
  for (int rank = 1; rank < job.ranks * job.replicas; ++rank) {
    const float value = value_of(job, step, call, rank, element);
    result = op == ReduceOp::kSum ? result + value : std::max(result, value);
  }
  return result;
}

void check_reduced(Job& job, int64_t step, int64_t call, ReduceOp op, const at::Tensor& tensor, const char* what) {
  const auto* const values = tensor.const_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const float wanted = expected(job, step, call, op, i);
    if (std::bit_cast<uint32_t>(values[i]) == std::bit_cast<uint32_t>(wanted)) continue;
    job.problem(fmt::format("step {}: {} of call {} gave {} at element {} of {}, expected {}", step, what, call,
                            values[i], i, tensor.numel(), wanted));
    return;
  }
}

// The training's state: a number that every step changes.
class State final : public core::Stateful {
 public:
  int64_t step = 0, value = 0;
  void save(core::StateWriter& writer) const override {
    writer.integer("step", step);
    writer.tensor("value", at::full({64}, value, at::kLong));
  }
  void load(const core::StateReader& reader) override {
    step = reader.integer("step");
    value = reader.tensor("value").const_data_ptr<int64_t>()[0];
  }
};

class RankOfTraining {
 public:
  RankOfTraining(Job& job, Attempt& attempt, int rank) : job_(job), attempt_(attempt), rank_(rank) {}

  void run() {
    meet();
    resume();
    make_communicators();
    while (state_.step < job_.steps) step();
    if (queue_) queue_->drain();
    engine_->finish(kCollectiveDeadline);
    group_->leave();
  }
  std::optional<Error> reported() const { return group_ ? group_->reported() : std::nullopt; }

 private:
  void meet() {
    parallel::ProcessGroupOptions options{.deadlines = {.start = kStartDeadline, .step = kStepDeadline},
                                          .grace = kGrace};
    options.last_resort = last_resort(attempt_, rank_);
    const std::string first = job_.world.machine(0).name;
    if (job_.launcher_shares) {
      options.listen_address = first;
      options.share = [this](const std::string& of_first) { return share(of_first); };
    }
    group_ = std::make_shared<ProcessGroup>(
        parallel::ProcessRank{.rank = rank_, .size = job_.ranks, .master_address = first, .master_port = kHubPort},
        std::move(options));
    parallel::TcpTransportOptions transport{.process = rank_, .deadline = kStartDeadline + std::chrono::seconds(5)};
    for (int i = 0; i < job_.ranks; ++i) {
      transport.addresses.push_back({.host = job_.world.machine(i).name, .port = kExchangePort});
    }
    transport.token = group_->from_first(
        "the token of the exchange", rank_ == 0 ? fmt::format("attempt {} of {}", attempt_.number, job_.content) : "");
    start_engine(transport);
  }

  // Of the launcher: gives all ranks the text of rank 0.
  std::string share(const std::string& of_first) {
    if (rank_ == 0) attempt_.place = of_first;
    const auto end = std::chrono::steady_clock::now() + kStartDeadline;
    while (attempt_.place.empty()) {
      if (std::chrono::steady_clock::now() >= end) throw Error(ErrorCode::kTimeout, "rank 0 has shared nothing");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return attempt_.place;
  }

  // As the front ends do.
  void start_engine(const parallel::TcpTransportOptions& transport) {
    const auto turns = std::make_shared<std::atomic<int64_t>>(0);
    group_->watch_exchange([turns] { return turns->load(); });
    parallel::PeerWatch watch{.reported =
                                  [group = group_, turns] {
                                    ++*turns;
                                    return group->reported();
                                  },
                              .report = [group = group_](const Error& error) { group->report(error); },
                              .begin =
                                  [group = group_](const char* operation) {
                                    group->progress(operation);
                                    group->begin_meeting();
                                  },
                              .end = [group = group_] { group->end_meeting(); }};
    group_->begin_meeting();
    engine_ = ProcessEngine::start([transport] { return parallel::open_tcp_transport(transport); },
                                   kStartDeadline + std::chrono::seconds(10), std::move(watch));
    group_->end_meeting();
    group_->watch_exchange(engine_->turns());
  }

  void make_communicators() {
    parallel::AlgorithmChoice choose = parallel::choose_algorithm;
    if (job_.algorithm == "chain") {
      choose = parallel::choice_by_size({{.algorithm = "chain", .chunk_bytes = 1024}});
    } else if (!job_.algorithm.empty()) {
      choose = parallel::AllReduceOptions{.spec = job_.algorithm}.choice();
    }
    communicators_ = parallel::make_process_communicators(engine_, job_.replicas, kCollectiveDeadline, choose,
                                                          parallel::HostExchange::kMessages);
  }

  void resume() {
    std::string found;
    if (rank_ == 0) {
      files_ = core::make_file_system(job_.disk);
      store_.emplace(kFolder, 2, *files_);
      train::resume_newest_checkpoint(*store_, nullptr, state_);
      found = fmt::format("{} {}", state_.step, state_.value);
      if (state_.step < job_.saved_step) {
        job_.problem(
            fmt::format("resumed from step {}, and step {} was reported as saved", state_.step, job_.saved_step));
      }
    }
    found = group_->from_first("the state", found);
    state_.step = std::stoll(found);
    state_.value = std::stoll(found.substr(found.find(' ') + 1));
    if (state_.value != job_.state_at(state_.step)) {
      job_.problem(fmt::format("the state that was resumed is not that of step {}", state_.step));
    }
  }

  void step() {
    const int64_t number = state_.step;
    attempt_.ranks[static_cast<size_t>(rank_)].begun_step = number;
    group_->progress("compute", number);
    compute(number);
    std::vector<std::optional<Error>> errors(static_cast<size_t>(job_.replicas));
    const auto try_to_exchange = [&](int replica) {
      try {
        exchange(number, replica);
      } catch (const Error& error) {
        errors[static_cast<size_t>(replica)] = error;
      }
    };
    std::vector<core::Thread> others;
    for (int replica = 1; replica < job_.replicas; ++replica) {
      others.emplace_back(core::ThreadOptions{}, [&try_to_exchange, replica] { try_to_exchange(replica); });
    }
    try_to_exchange(0);
    for (core::Thread& thread : others) thread.join();
    for (const std::optional<Error>& error : errors) {
      if (error) throw Error(*error);
    }
    agree(number);
    ++state_.step;
    state_.value = mixed(static_cast<uint64_t>(state_.value), job_.content);
    if (state_.step % job_.save_every == 0) save();
  }

  void compute(int64_t number) {
    hang_if_drawn(attempt_, rank_, number);
    World& world = *World::entered();
    world.sleep_until(world.now() + world.draws().between(0, job_.longest_compute));
  }

  // The collectives of a step. All ranks make the same ones, of this seed.
  void exchange(int64_t number, int replica) {
    Communicator& own = *communicators_[static_cast<size_t>(replica)];
    RandomDraws shared(static_cast<uint64_t>(mixed(job_.content, static_cast<uint64_t>(number))));
    const int64_t count = shared.between(1, 4);
    std::vector<at::Tensor> tensors;
    std::vector<std::unique_ptr<core::PendingCollective>> started;
    std::vector<ReduceOp> ops;
    for (int64_t call = 0; call < count; ++call) {
      int64_t elements = shared.between(1, job_.elements);
      if (attempt_.fault == Fault::kDisagree && attempt_.victim == rank_ && number == attempt_.fault_step &&
          call == 0) {
        attempt_.happened = true;
        attempt_.fault_at = job_.world.now();
        ++elements;
      }
      ops.push_back(shared.chance(0.8) ? ReduceOp::kSum : ReduceOp::kMax);
      tensors.push_back(at::empty({elements}));
      fill(job_, number, call, own.rank(), tensors.back());
      started.push_back(own.start_all_reduce(tensors.back(), ops.back()));
    }
    const bool compute_between = job_.world.draws().chance(0.5);
    for (size_t i = 0; i < started.size(); ++i) {
      if (compute_between) World::entered()->sleep_until(World::entered()->now() + kMillisecond);
      started[i]->wait();
      check_reduced(job_, number, static_cast<int64_t>(i), ops[i], tensors[i], "an all-reduce");
    }
    if (shared.chance(0.5)) reduce_buckets(number, own, shared.between(1, 4) * 512);
    if (shared.chance(0.3)) broadcast(number, own, static_cast<int>(shared.below(static_cast<uint64_t>(own.size()))));
    if (shared.chance(0.3)) gather(number, own);
    if (shared.chance(0.2)) own.barrier();
  }

  void reduce_buckets(int64_t number, Communicator& own, int64_t bytes) {
    constexpr int kParameters = 5;
    nn::ParameterSet set;
    std::vector<nn::ParameterId> ids;
    for (int i = 0; i < kParameters; ++i)
      ids.push_back(set.declare({.name = fmt::format("p{}", i), .shape = {50 * (i + 1)}}));
    set.allocate();
    parallel::GradientBuckets buckets(set, own, ReduceOp::kSum, bytes);
    // A backward finishes the last layer first, more or less.
    std::reverse(ids.begin(), ids.end());
    if (job_.world.draws().chance(0.5)) std::swap(ids[1], ids[2]);
    for (const nn::ParameterId id : ids) {
      const at::Tensor gradient = set.gradient(id);
      fill(job_, number, 10 + id.index, own.rank(), gradient);
      buckets.ready(id);
      World::entered()->pass();
    }
    buckets.reduce();
    for (const nn::ParameterId id : ids) {
      check_reduced(job_, number, 10 + id.index, ReduceOp::kSum, set.gradient(id), "a bucket");
    }
  }

  void broadcast(int64_t number, Communicator& own, int root) {
    const at::Tensor tensor = at::empty({300});
    fill(job_, number, 20, own.rank(), tensor);
    own.broadcast(tensor, root);
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      if (tensor.const_data_ptr<float>()[i] == value_of(job_, number, 20, root, i)) continue;
      return job_.problem(fmt::format("step {}: a broadcast of rank {} has a wrong element {}", number, root, i));
    }
  }

  void gather(int64_t number, Communicator& own) {
    const at::Tensor tensor = at::empty({100});
    fill(job_, number, 21, own.rank(), tensor);
    const std::vector<at::Tensor> all = own.all_gather(tensor);
    for (int rank = 0; rank < own.size(); ++rank) {
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        if (all[static_cast<size_t>(rank)].const_data_ptr<float>()[i] == value_of(job_, number, 21, rank, i)) continue;
        return job_.problem(fmt::format("step {}: all_gather has a wrong element {} of rank {}", number, i, rank));
      }
    }
  }

  // What the ranks agree on by texts, behind their step.
  void agree(int64_t number) {
    const auto own = [number](int rank) { return fmt::format("step {} of rank {}", number, rank); };
    const std::vector<std::string> all = group_->gather("the end of a step", own(rank_));
    for (int rank = 0; rank < job_.ranks; ++rank) {
      if (all[static_cast<size_t>(rank)] == own(rank)) continue;
      job_.problem(fmt::format("rank {} gathered \"{}\" of rank {}, which said \"{}\"", rank_,
                               all[static_cast<size_t>(rank)], rank, own(rank)));
    }
    if (!job_.world.draws().chance(0.2)) return;
    group_->send_note_to_rank_0(fmt::format("a note of rank {}", rank_));
  }

  void save() {
    if (rank_ == 0 && job_.saves_in_background) {
      save_in_background();
    } else if (rank_ == 0) {
      store_->save(state_.step, {}, state_);
      note_saved(state_.step);
    }
    const std::string saved = group_->from_first("saved", fmt::format("{}", state_.step));
    if (saved != fmt::format("{}", state_.step)) {
      job_.problem(fmt::format("rank {} heard of step {}, and is at step {}", rank_, saved, state_.step));
    }
  }

  void save_in_background() {
    if (!queue_) queue_.emplace([] { return INT64_MAX; });
    queue_->check();
    const std::shared_ptr<const train::CheckpointCopy> copy = queue_->copy(state_, state_.step);
    if (!copy) return job_.problem("there is no memory for a copy of the state");
    queue_->submit([this, copy] {
      store_->save_copy(copy->global_step(), {}, *copy);
      note_saved(copy->global_step());
    });
  }

  void note_saved(int64_t step) {
    job_.world.trace("saved step", step);
    job_.saved_step = std::max(job_.saved_step, step);
  }

  Job& job_;
  Attempt& attempt_;
  const int rank_;
  State state_;
  std::unique_ptr<core::FileSystem> files_;
  std::optional<train::CheckpointStore> store_;
  std::optional<train::CheckpointQueue> queue_;
  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<ProcessEngine> engine_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace

void run_rank(Job& job, Attempt& attempt, int rank) {
  Attempt::Rank& result = attempt.ranks[static_cast<size_t>(rank)];
  {
    RankOfTraining training(job, attempt, rank);
    try {
      training.run();
    } catch (const Error& error) {
      result.error = error;
      result.reported = training.reported();
      job.world.trace("rank fails:", rank, error.what());
      job.world.trace("  the group says:", result.reported ? result.reported->what() : "nothing");
    }
  }
  result.ended = true;
  result.ended_at = job.world.now();
}

int64_t Job::state_at(int64_t step) const {
  int64_t value = 0;
  for (int64_t i = 0; i < step; ++i) value = mixed(static_cast<uint64_t>(value), content);
  return value;
}

void Job::problem(const std::string& text) {
  world.trace("PROBLEM:", text);
  problems.push_back(fmt::format("attempt {}: {}", attempt == nullptr ? 0 : attempt->number, text));
}

}  // namespace trainyard::cluster_simulation
