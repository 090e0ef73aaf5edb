// What workers and parameter servers of the simulated training do: the calls of the library that real ones make, in
// their order (frontends/tf_cnn/cluster_run.cpp, frontends/options/device_settings.cpp, train/loop).
#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "tests/cluster_simulation/servers.h"
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/base/scoped_state.h"
#include "trainyard/core/base/work_count.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/servers/parameter_server.h"
#include "trainyard/parallel/servers/server_group.h"
#include "trainyard/parallel/variable_update/variable_update.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/shared_checkpoint.h"

namespace trainyard::cluster_simulation {
namespace {

using core::Error;
using parallel::ServerMode;

constexpr const char* kFolder = "/disk/served";
constexpr uint16_t kServerPort = 29'700;
constexpr double kLearningRate = 0.5;
constexpr int kParameters = 5;
// What all gradients are multiples of, so that the mean of up to four workers' is exact.
constexpr int kUnit = 12;

// A worker that ends tells its servers why for a second (ServerConnections).
constexpr std::chrono::milliseconds kServedGrace{2000};

const parallel::RankDeadlines kDeadlines{.start = kStartDeadline, .step = kStepDeadline};

parallel::ParameterServer::MakeOptimizers optimizers_of(const ServedJob& job) {
  return {[name = job.optimizer](nn::ParameterSet& set) { return optim::optimizers().get(name)(set, {}); }};
}

void declare(const ServedJob& job, nn::ParameterSet& set) {
  for (int i = 0; i < kParameters; ++i) {
    set.declare({.name = fmt::format("p{}", i), .shape = {job.elements * (i + 1)}, .init = nn::Initializer::ones()});
  }
}

// In kAsynchronous all gradients of an element are the same, so that its value tells how often it was updated.
float gradient_of(const ServedJob& job, int64_t step, int worker, int64_t element) {
  const uint64_t place = job.is_asynchronous()
                             ? static_cast<uint64_t>(element)
                             : static_cast<uint64_t>(step * 64 + worker) * 10'000'019 + static_cast<uint64_t>(element);
  return static_cast<float>(kUnit * (1 + static_cast<int64_t>((place * 0x9e3779b97f4a7c15 ^ job.content) >> 40) % 50));
}

// The state of a training: what the servers hold, and the step.
class State final : public core::Stateful {
 public:
  explicit State(parallel::VariableUpdate& update) : update_(update) {}
  int64_t step = 0;
  void save(core::StateWriter& writer) const override {
    writer.integer("step", step);
    core::ScopedWriter variables(writer, "variables/");
    update_.save(variables);
  }
  void load(const core::StateReader& reader) override {
    step = reader.integer("step");
    update_.load(core::ScopedReader(reader, "variables/"));
  }

 private:
  parallel::VariableUpdate& update_;
};

class WorkerOfTraining {
 public:
  WorkerOfTraining(ServedJob& job, Attempt& attempt, int worker) : job_(job), attempt_(attempt), worker_(worker) {}

  void run() {
    const at::NoGradGuard without_gradients;
    meet();
    make_update();
    resume();
    const int64_t begin = state_->step;
    while (state_->step < job_.steps) step();
    if (job_.is_asynchronous()) count_updates(begin);
    servers_->leave();
    if (group_) group_->leave();
  }

 private:
  void meet() {
    if (job_.with_processes) {
      parallel::ProcessGroupOptions options{.deadlines = kDeadlines, .grace = kServedGrace};
      options.last_resort = last_resort(attempt_, worker_);
      group_ =
          std::make_shared<parallel::ProcessGroup>(parallel::ProcessRank{.rank = worker_,
                                                                         .size = job_.cluster.workers,
                                                                         .master_address = job_.world.machine(0).name,
                                                                         .master_port = kHubPort},
                                                   std::move(options));
    }
    parallel::ServerGroupOptions options{.cluster = job_.cluster, .worker = worker_, .deadlines = kDeadlines};
    for (int s = 0; s < job_.cluster.servers; ++s) {
      options.addresses.push_back(fmt::format("{}:{}", job_.world.machine(job_.cluster.workers + s).name, kServerPort));
    }
    servers_ = std::make_shared<parallel::ServerGroup>(std::move(options));
    if (group_) servers_->fail_with(group_);
  }

  void make_update() {
    const char* const mode =
        job_.cluster.mode == ServerMode::kStaged ? "staged_parameter_server" : "distributed_replicated";
    update_ = parallel::variable_updates().get(mode)(
        {.parameters = {.dtype = at::kFloat},
         .make_optimizers = optimizers_of(job_),
         .reduction = job_.cluster.reduction == parallel::ServerReduction::kMean ? parallel::GradientReduction::kMean
                                                                                 : parallel::GradientReduction::kSum,
         .servers = servers_});
    declare(job_, update_->parameters(0));
    update_->allocate();
    state_.emplace(*update_);
  }

  void resume() {
    files_ = core::make_file_system(job_.disk);
    const auto load = [this] {
      store_.emplace(kFolder, 2, *files_);
      return train::resume_newest_checkpoint(*store_, nullptr, *state_);
    };
    if (group_) {
      train::load_shared(*group_, *state_, load, *files_);
    } else {
      load();
    }
    if (state_->step < job_.saved_step && worker_ == 0) {
      job_.problem(
          fmt::format("resumed from step {}, and step {} was reported as saved", state_->step, job_.saved_step));
    }
    if (job_.is_asynchronous() && worker_ == 0) {
      attempt_.updates = expect_whole_updates(update_->parameters(0).values(), "resumed");
    }
    expect_values(values_read(state_->step), "values that were resumed");
  }

  // Returns behind how many updates values are that are read behind this step.
  int64_t values_read(int64_t step) const {
    return job_.cluster.mode == ServerMode::kStaged ? std::max<int64_t>(step - 1, 0) : step;
  }

  void step() {
    const int64_t number = state_->step;
    attempt_.rank(worker_).begun_step = number;
    if (group_) group_->progress("compute", number);
    hang_if_drawn(attempt_, worker_, number);
    World& world = *World::entered();
    world.sleep_until(world.now() + world.draws().between(0, job_.longest_compute));
    nn::ParameterSet& set = update_->parameters(0);
    auto* const gradients = set.gradients().mutable_data_ptr<float>();
    for (int64_t i = 0; i < set.total(); ++i) gradients[i] = gradient_of(job_, number, worker_, i);
    double rate = kLearningRate;
    if (attempt_.fault == Fault::kDisagree && attempt_.victim == worker_ && number == attempt_.fault_step) {
      attempt_.happened = true;
      attempt_.fault_at = world.now();
      rate *= 2;
    }
    update_->reduce(0);
    optim::StepState state;
    state.write({.learning_rate = rate, .step = number, .found_inf = job_.found_inf(number, worker_)});
    update_->update(0, state);
    expect_finite(number);
    if (job_.changes_values(number)) {
      update_->change_values([](nn::ParameterSet& changed) {
        changed.values().add_(1);
        changed.values_changed();
      });
    }
    ++state_->step;
    expect_values(values_read(state_->step), "values that were read");
    if (state_->step % job_.save_every == 0) save();
  }

  void expect_finite(int64_t number) {
    const std::optional<bool> finite = update_->gradients_finite(0);
    if (!finite || job_.is_asynchronous()) return;
    bool expected = true;
    for (int worker = 0; worker < job_.cluster.workers; ++worker) expected &= !job_.found_inf(number, worker);
    if (*finite != expected) job_.problem(fmt::format("step {}: gradients are called finite: {}", number, *finite));
  }

  void expect_values(int64_t updates, const char* what) {
    const at::Tensor& values = update_->parameters(0).values();
    if (job_.is_asynchronous()) return;
    const auto* const actual = values.const_data_ptr<float>();
    const auto* const wanted = job_.states.at(static_cast<size_t>(updates)).front().const_data_ptr<float>();
    for (const nn::Segment& segment : update_->parameters(0).segments()) {
      for (int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
        if (std::bit_cast<uint32_t>(actual[i]) == std::bit_cast<uint32_t>(wanted[i])) continue;
        return job_.problem(fmt::format("worker {}, step {}: {} have {} at element {}, expected {}", worker_,
                                        state_->step, what, actual[i], i, wanted[i]));
      }
    }
  }

  // kAsynchronous: each server has made whole updates, the same number of each of its elements, with slots of the same
  // number. Returns the least of all servers.
  int64_t expect_whole_updates(const at::Tensor& values, const char* what) {
    const std::vector<int64_t> parts = servers_->boundaries();
    std::vector<at::Tensor> state = {values};
    for (const optim::Optimizer::Slot& slot : update_->optimizer(0)->slots()) state.push_back(slot.values);
    std::vector<std::optional<int64_t>> updates(parts.size());  // by server, from 1
    for (const nn::Segment& segment : update_->parameters(0).segments()) {
      for (int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
        const auto server = static_cast<size_t>(std::upper_bound(parts.begin(), parts.end(), i) - parts.begin());
        if (!updates.at(server)) updates[server] = updates_of(values, i);
        if (has_updates(state, i, *updates[server])) continue;
        job_.problem(fmt::format("{}: server {} has {} at element {}, which is not that of update {}", what, server - 1,
                                 values.const_data_ptr<float>()[i], i, *updates[server]));
        return -1;
      }
    }
    int64_t least = INT64_MAX;
    for (const std::optional<int64_t>& each : updates) least = std::min(least, each.value_or(INT64_MAX));
    return least;
  }

  // Returns behind how many updates the element has this value; below 0: behind none.
  int64_t updates_of(const at::Tensor& values, int64_t element) const {
    const float value = values.const_data_ptr<float>()[element];
    const auto found = std::find_if(job_.states.begin(), job_.states.end(), [&](const std::vector<at::Tensor>& state) {
      return state[0].const_data_ptr<float>()[element] == value;
    });
    return found == job_.states.end() ? -1 : found - job_.states.begin();
  }
  bool has_updates(const std::vector<at::Tensor>& state, int64_t element, int64_t updates) const {
    if (updates < 0) return false;
    const std::vector<at::Tensor>& expected = job_.states.at(static_cast<size_t>(updates));
    for (size_t i = 0; i < state.size(); ++i) {
      if (state[i].const_data_ptr<float>()[element] != expected.at(i).const_data_ptr<float>()[element]) return false;
    }
    return true;
  }

  // Behind all pushes of kAsynchronous there has been one update for each. Workers at their own pace end together when
  // the servers have made all.
  void count_updates(int64_t begin) {
    World& world = *World::entered();
    constexpr Nanos kBetween = 20 * kMillisecond;
    const int64_t pushes = job_.cluster.workers * (job_.steps - begin);
    for (int64_t made = servers_->updates(); !attempt_.updates || made < *attempt_.updates + pushes;
         made = servers_->updates()) {
      world.sleep_until(world.now() + kBetween);
      core::count_work();  // it is not idle
    }
    if (worker_ != 0) return;
    // Other servers may be behind the first one.
    const int64_t expected = *attempt_.updates + pushes;
    int64_t updates = 0;
    for (int tries = 0; tries < 100 && updates >= 0 && updates < expected; ++tries) {
      updates = expect_whole_updates(read_values(), "behind all pushes");
      if (updates < expected) world.sleep_until(world.now() + kBetween);
    }
    if (updates != expected) job_.problem(fmt::format("{} updates, expected {}", updates, expected));
  }

  // Returns the servers' values, and has read the slots of the same moment into the chief's own.
  at::Tensor read_values() {
    core::MemoryState read;
    update_->save(read);
    const nn::ParameterSet& set = update_->parameters(0);
    at::Tensor values = at::zeros_like(set.values());
    for (const nn::Segment& segment : set.segments()) {
      values.narrow(0, segment.offset, segment.count).copy_(read.tensor("model/" + segment.spec.name).flatten());
    }
    return values;
  }

  void save() {
    if (worker_ != 0) return;
    store_->save(state_->step, {}, *state_);
    job_.world.trace("saved step", state_->step);
    job_.saved_step = std::max(job_.saved_step, state_->step);
  }

  ServedJob& job_;
  Attempt& attempt_;
  const int worker_;
  std::shared_ptr<parallel::ProcessGroup> group_;
  std::shared_ptr<parallel::ServerGroup> servers_;
  std::unique_ptr<parallel::VariableUpdate> update_;
  std::optional<State> state_;
  std::unique_ptr<core::FileSystem> files_;
  std::optional<train::CheckpointStore> store_;
};

// Notes how a process has ended.
template <typename Work>
void run_process(ServedJob& job, Attempt& attempt, int process, const Work& work) {
  Attempt::Rank& result = attempt.rank(process);
  try {
    work();
  } catch (const Error& error) {
    result.error = error;
    job.world.trace("fails:", job.name_of(process), error.what());
  }
  result.ended = true;
  result.ended_at = job.world.now();
}

}  // namespace

void run_worker(ServedJob& job, Attempt& attempt, int worker) {
  run_process(job, attempt, worker, [&] { WorkerOfTraining(job, attempt, worker).run(); });
}

void run_server(ServedJob& job, Attempt& attempt, int server) {
  run_process(job, attempt, job.cluster.workers + server, [&] {
    attempt.rank(job.cluster.workers + server).begun_step = 0;
    parallel::ParameterServer served(
        {.cluster = job.cluster,
         .server = server,
         .address = fmt::format("{}:{}", job.world.machine(job.cluster.workers + server).name, kServerPort),
         .deadlines = kDeadlines},
        optimizers_of(job));
    served.wait();
  });
}

std::string ServedJob::name_of(int process) const {
  return process < cluster.workers ? fmt::format("worker {}", process)
                                   : fmt::format("parameter server {}", process - cluster.workers);
}

bool ServedJob::found_inf(int64_t step, int worker) const {
  constexpr uint64_t kOneOf = 16;
  return !is_asynchronous() && RandomDraws(content + static_cast<uint64_t>(step * 64 + worker)).below(kOneOf) == 0;
}

bool ServedJob::changes_values(int64_t step) const {
  constexpr uint64_t kOneOf = 6;
  return cluster.mode == ServerMode::kSynchronous &&
         RandomDraws(content + static_cast<uint64_t>(step) * 1'000'003).below(kOneOf) == 0;
}

void ServedJob::expect_states() {
  nn::ParameterSet set({.dtype = at::kFloat});
  declare(*this, set);
  set.allocate();
  set.initialize(1);
  const auto own = optim::optimizers().get(optimizer)(set, {});
  const auto keep = [&] {
    states.push_back({set.values().clone()});
    for (const optim::Optimizer::Slot& slot : own->slots()) states.back().push_back(slot.values.clone());
  };
  keep();
  const int64_t updates = is_asynchronous() ? kMostAttempts * cluster.workers * steps : steps;
  const bool sums = cluster.reduction == parallel::ServerReduction::kSum;
  for (int64_t step = 0; step < updates; ++step) {
    auto* const gradients = set.gradients().mutable_data_ptr<float>();
    const int workers = is_asynchronous() ? 1 : cluster.workers;
    bool skipped = false;
    for (int worker = 0; worker < workers; ++worker) skipped |= found_inf(step, worker);
    for (int64_t i = 0; i < set.total(); ++i) {
      float sum = 0;
      for (int worker = 0; worker < workers; ++worker) sum += gradient_of(*this, step, worker, i);
      gradients[i] = sums ? sum : sum / static_cast<float>(workers);
    }
    optim::StepState state;
    state.write({.learning_rate = kLearningRate, .step = step, .found_inf = skipped});
    own->apply(state);
    if (changes_values(step)) set.values().add_(1);
    keep();
  }
}

void ServedJob::problem(const std::string& text) {
  world.trace("PROBLEM:", text);
  problems.push_back(fmt::format("attempt {}: {}", attempt == nullptr ? 0 : attempt->number, text));
}

}  // namespace trainyard::cluster_simulation
