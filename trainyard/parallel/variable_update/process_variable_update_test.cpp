// Processes as threads: each has a variable update of its own, and they meet by communicators that could be anyone's.
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/process_communicator.h"
#include "trainyard/parallel/collectives/shared_memory/shared_memory_communicator.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/memory_transport.h"
#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::parallel::process_variable_update_test {
namespace {

constexpr double kRate = 0.1, kDecay = 0.125;

using Communicators = std::vector<std::unique_ptr<core::Communicator>>;

VariableUpdateOptions options_for(std::unique_ptr<core::Communicator>& communicator) {
  return {.parameters = {.dtype = at::kDouble},
          .make_communicators =
              [&communicator] {
                Communicators one;
                one.push_back(std::move(communicator));
                return one;
              },
          .make_optimizers = {[](nn::ParameterSet& set) {
            return optim::optimizers().get("sgd")(set, {.weight_decay = kDecay});
          }},
          .seed = static_cast<uint64_t>(communicator->rank()),  // each its own: rank 0's values count
          .deadline = std::chrono::seconds(20)};
}

std::unique_ptr<VariableUpdate> make(const VariableUpdateOptions& options, int64_t width = 7) {
  auto update = variable_updates().get("horovod")(options);
  update->parameters(0).declare({.name = "fc.weight", .shape = {5, width}, .init = nn::Initializer::normal(1.0)});
  update->parameters(0).declare_buffer({.name = "bn.running_mean", .shape = {5}, .init = nn::Initializer::zeros()});
  return update;
}

void on_processes(int count, const std::function<void(int, std::unique_ptr<core::Communicator>&)>& work) {
  Communicators communicators = make_thread_communicators(count);
  std::vector<core::Thread> threads;
  for (int r = 0; r < count; ++r) {
    threads.emplace_back(core::ThreadOptions{}, [&, r] { work(r, communicators[static_cast<size_t>(r)]); });
  }
  for (core::Thread& thread : threads) thread.join();
}

// An optimizer with slots and all counts: of updates, of those that each parameter has missed, and Lookahead's.
std::unique_ptr<optim::Optimizer> make_counting(nn::ParameterSet& set) {
  return optim::optimizers().get("torch_radam")(set, {.lookahead = optim::Lookahead{}});
}

std::vector<at::Tensor> state_of(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all{optimizer.update_count(), optimizer.missed_updates(), optimizer.lookahead_count()};
  for (const optim::Optimizer::Slot& slot : optimizer.slots()) all.push_back(slot.values);
  return all;
}

// w -= rate * g with g the mean, or the sum, over processes of 0.5 w + rank + step, and the decay of each.
double expected(double w, int processes, int steps, bool sum) {
  for (int step = 0; step < steps; ++step) {
    double g = 0;
    for (int r = 0; r < processes; ++r) g += 0.5 * w + r + step + kDecay * w;
    w -= kRate * (sum ? g : g / processes);
  }
  return w;
}

TEST(Horovod, ProcessesThatDifferAreEqualAfterABroadcast) {
  constexpr int kProcesses = 3;
  std::vector<at::Tensor> values(kProcesses), statistics(kProcesses), slots(kProcesses);
  std::vector<double> counts(kProcesses);
  on_processes(kProcesses, [&](int rank, auto& communicator) {
    const at::NoGradGuard without_gradients;
    VariableUpdateOptions options = options_for(communicator);
    options.make_optimizers = {[](nn::ParameterSet& set) {
      return optim::optimizers().get("keras_momentum")(set, {.lookahead = optim::Lookahead{}});
    }};
    const auto update = make(options);
    update->allocate();
    nn::ParameterSet& set = update->parameters(0);
    const at::Tensor slot = update->optimizer(0)->slots()[0].values;
    set.values().add_(rank);
    set.buffer(0).fill_(10 + rank);
    slot.fill_(20 + rank);
    update->optimizer(0)->lookahead_count().fill_(30 + rank);
    update->broadcast();
    const auto own = static_cast<size_t>(rank);
    counts[own] = update->optimizer(0)->lookahead_count().item<double>();
    values[own] = set.values().clone();
    statistics[own] = set.buffer(0).clone();
    slots[own] = slot.clone();
  });
  for (size_t rank = 0; rank < kProcesses; ++rank) {
    EXPECT_TRUE(values[rank].equal(values[0]));
    EXPECT_TRUE(statistics[rank].eq(10).all().item<bool>());
    EXPECT_TRUE(slots[rank].eq(20).all().item<bool>());
    EXPECT_EQ(counts[rank], 30) << "Lookahead moves its weights in the same steps";
  }
}

TEST(Horovod, AllStateOfAnOptimizerBecomesRank0s) {
  constexpr int kProcesses = 3;
  std::vector<std::vector<at::Tensor>> states(kProcesses);
  on_processes(kProcesses, [&](int rank, auto& communicator) {
    const at::NoGradGuard without_gradients;
    VariableUpdateOptions options = options_for(communicator);
    options.make_optimizers = {make_counting};
    const auto update = make(options);
    update->allocate();
    std::vector<at::Tensor>& own = states[static_cast<size_t>(rank)];
    own = state_of(*update->optimizer(0));
    for (const at::Tensor& each : own) each.fill_(20 + rank);
    update->broadcast();
    for (at::Tensor& each : own) each = each.clone();
  });
  for (size_t rank = 0; rank < kProcesses; ++rank) {
    ASSERT_EQ(states[rank].size(), 6U) << "three counts, two means, and the slow weights";
    for (size_t i = 0; i < states[rank].size(); ++i) {
      EXPECT_TRUE(states[rank][i].eq(20).all().item<bool>()) << rank << ": " << i;
    }
  }
}

// Each rank updates a copy of its own, and nothing else would say that they drift apart.
TEST(Horovod, RanksMustHaveTheSameOptimizer) {
  struct Other {
    std::string name;
    optim::OptimizerOptions options;
    std::string said;
  };
  const std::vector<Other> others{
      {"tf_nesterov", {}, "expected optimizer tf_momentum, got optimizer tf_nesterov"},
      {"tf_momentum", {.numbers = {{"momentum", 0.5}}}, "expected momentum 0.9, got momentum 0.5"},
      {"tf_momentum", {.weight_decay = 0.25}, "expected weight_decay 0, got weight_decay 0.25"},
      {"tf_momentum", {.gradient_clip = 2.0}, "expected gradient clip none, got gradient clip 2"}};
  for (const Other& other : others) {
    on_processes(3, [&](int rank, auto& communicator) {
      VariableUpdateOptions options = options_for(communicator);
      options.make_optimizers = {[&, rank](nn::ParameterSet& set) {
        return rank == 2 ? optim::optimizers().get(other.name)(set, other.options)
                         : optim::optimizers().get("tf_momentum")(set, {});
      }};
      const auto update = make(options);
      const std::string error = core::message_of([&] { update->allocate(); });
      EXPECT_NE(error.find("ranks have different optimizers: rank 2: " + other.said), std::string::npos) << error;
    });
  }
}

TEST(Horovod, StartsAsRank0AndReducesByItsDefinition) {
  for (const int processes : {1, 2, 3}) {
    for (const bool sum : {false, true}) {
      std::vector<at::Tensor> values(static_cast<size_t>(processes));
      std::vector<double> started(static_cast<size_t>(processes));
      on_processes(processes, [&](int rank, auto& communicator) {
        VariableUpdateOptions options = options_for(communicator);
        if (sum) options.reduction = GradientReduction::kSum;
        const auto update = make(options);
        update->allocate();
        EXPECT_EQ(update->reduction(), sum ? GradientReduction::kSum : GradientReduction::kMean);
        nn::ParameterSet& set = update->parameters(0);
        started[static_cast<size_t>(rank)] = set.values()[0].item<double>();
        optim::StepState state;
        state.write({.learning_rate = kRate});
        for (int step = 0; step < 4; ++step) {
          const at::NoGradGuard without_gradients;
          set.gradients().copy_(set.values().mul(0.5).add(rank + step));
          update->reduce(0);
          update->update(0, state);
        }
        values[static_cast<size_t>(rank)] = set.values().clone();
      });
      for (int rank = 0; rank < processes; ++rank) {
        EXPECT_EQ(started[static_cast<size_t>(rank)], started[0]);
        EXPECT_TRUE(values[static_cast<size_t>(rank)].equal(values[0])) << "rank " << rank;
      }
      EXPECT_NEAR(values[0][0].item<double>(), expected(started[0], processes, 4, sum), 1e-12);
    }
  }
}

TEST(Horovod, SavesAsOneProcessDoes) {
  on_processes(2, [](int, auto& communicator) {
    const auto update = make(options_for(communicator));
    update->allocate();
    core::MemoryState state;
    update->save(state);
    EXPECT_EQ(state.names("model/"), (std::vector<std::string>{"model/bn.running_mean", "model/fc.weight"}));
  });
}

TEST(Horovod, ProcessesMustDeclareTheSame) {
  on_processes(2, [](int rank, auto& communicator) {
    const auto update = make(options_for(communicator), 7 + rank);
    EXPECT_THAT(core::message_of([&] { update->allocate(); }),
                core::Says("ranks have declared different variables: rank 1: expected 1 parameters of 35 elements, 1 "
                           "buffers as on rank 0, got 1 parameters of 40 elements, 1 buffers"))
        << rank;
  });
}

TEST(Horovod, IsOneReplicaWithACommunicator) {
  auto communicators = make_thread_communicators(1);
  VariableUpdateOptions options = options_for(communicators[0]);
  options.replicas = 2;
  EXPECT_THROW(make(options), core::Error);
  options.replicas = 1;
  options.make_communicators = {};
  EXPECT_THROW(make(options), core::Error);
}

// Two replicas in one process and one in another, each with values, statistics, masks and slots of its own at first.
TEST(CollectiveAllReduce, AllReplicasOfAllProcessesBecomeRank0sFirst) {
  const auto transports = make_memory_transports(2);
  std::vector<at::Tensor> values(3), statistics(3), slots(3), masks(3);
  std::vector<core::Thread> processes;
  for (const int process : {0, 1}) {
    processes.emplace_back(core::ThreadOptions{}, [&, process] {
      const at::NoGradGuard without_gradients;
      const int own = process == 0 ? 2 : 1, first = process == 0 ? 0 : 2;
      const auto engine = ProcessEngine::start(transports[static_cast<size_t>(process)], std::chrono::seconds(20));
      auto nobody = make_thread_communicators(1);
      VariableUpdateOptions options = options_for(nobody[0]);
      options.replicas = own;
      options.seed = static_cast<uint64_t>(process);
      options.make_communicators = [&] { return make_process_communicators(engine, own, std::chrono::seconds(20)); };
      options.make_optimizers = {
          [](nn::ParameterSet& set) { return optim::optimizers().get("keras_momentum")(set, {}); }};
      const auto update = variable_updates().get("collective_all_reduce")(options);
      for (int r = 0; r < own; ++r) {
        update->parameters(r).declare({.name = "fc.weight", .shape = {5, 7}, .init = nn::Initializer::normal(1.0)});
        update->parameters(r).declare_buffer(
            {.name = "bn.running_mean", .shape = {5}, .init = nn::Initializer::zeros()});
      }
      update->allocate();
      EXPECT_EQ(update->reduction(), GradientReduction::kSum);
      for (int r = 0; r < own; ++r) {
        nn::ParameterSet& set = update->parameters(r);
        if (first + r < 2) set.set_mask({0}, set.value({0}).gt(-10.0 * r));
        set.values().add_(first + r);
        set.buffer(0).fill_(10 + first + r);
        update->optimizer(r)->slots()[0].values.fill_(20 + first + r);
      }
      update->broadcast();
      for (int r = 0; r < own; ++r) {
        const auto rank = static_cast<size_t>(first) + static_cast<size_t>(r);
        values[rank] = update->parameters(r).values().clone();
        statistics[rank] = update->parameters(r).buffer(0).clone();
        slots[rank] = update->optimizer(r)->slots()[0].values.clone();
        masks[rank] = update->parameters(r).mask({0});
      }
    });
  }
  for (core::Thread& process : processes) process.join();
  EXPECT_TRUE(values[0].ne(0).any().item<bool>());
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(values[rank].equal(values[0])) << rank;
    EXPECT_TRUE(statistics[rank].eq(10).all().item<bool>()) << rank;
    EXPECT_TRUE(slots[rank].eq(20).all().item<bool>()) << rank;
    ASSERT_TRUE(masks[rank].defined()) << rank;
    EXPECT_TRUE(masks[rank].equal(masks[0])) << rank;
  }
}

// Gradients of four replicas that are ready in another order on each of them, or not at all.
struct Leaving {
  std::vector<int> replicas;  // of each process
  int64_t bucket_bytes;
  bool two_optimizers = false, frozen = false, masked = false;
  HostExchange host = HostExchange::kMessages;
};

constexpr int kLayers = 9;

void declare_layers(nn::ParameterSet& set) {
  for (int layer = 0; layer < kLayers; ++layer) {
    set.declare(
        {.name = fmt::format("{}.weight", layer), .shape = {1 + 700 * layer, 3}, .init = nn::Initializer::normal(1.0)});
  }
}

VariableUpdateOptions leaving_options(const Leaving& leaving, int replicas) {
  const auto own = [](const std::string& pattern) {
    return [pattern](nn::ParameterSet& set) {
      return optim::optimizers().get("tf_momentum")(set, {.weight_decay = kDecay, .parameters = {pattern}});
    };
  };
  VariableUpdateOptions options{
      .replicas = replicas, .seed = 5, .deadline = std::chrono::seconds(20), .bucket_bytes = leaving.bucket_bytes};
  options.make_optimizers = {own(leaving.two_optimizers ? "[0-4].*" : "*")};
  if (leaving.two_optimizers) options.make_optimizers.push_back(own("[5-8].*"));
  if (leaving.masked) {
    options.start = [](nn::ParameterSet& set) { set.set_mask({4}, set.value({4}).gt(0)); };
  }
  return options;
}

// Three steps of replica `rank` of all.
void train_leaving(const Leaving& leaving, VariableUpdate& update, int replica, int rank) {
  const at::NoGradGuard without_gradients;
  nn::ParameterSet& set = update.parameters(replica);
  if (leaving.frozen) {
    for (const int layer : {0, 3, 8}) set.set_trainable({layer}, false);
  }
  optim::StepState state;
  state.write({.learning_rate = kRate});
  for (int step = 0; step < 3; ++step) {
    for (int optimizer = 0; optimizer < (leaving.two_optimizers ? 2 : 1); ++optimizer) {
      core::RandomStream order(9, "order", {static_cast<uint64_t>(rank), static_cast<uint64_t>(step)});
      std::vector<int> layers(kLayers);
      std::iota(layers.begin(), layers.end(), 0);
      // Rank 0 as a backward does, the others in any order; rank 2 keeps some back.
      for (size_t i = layers.size(); rank > 0 && i > 1; --i) std::swap(layers[i - 1], layers[order.below(i)]);
      if (rank == 0) std::reverse(layers.begin(), layers.end());
      // What leaves too early shows.
      for (const int layer : layers) set.gradient({layer}).fill_(std::numeric_limits<double>::quiet_NaN());
      for (const int layer : layers) {
        at::Tensor gradient = set.gradient({layer});
        gradient.copy_(set.value({layer}).mul(0.3 * rank + 0.1).add(0.7 * step));
        if (!set.trainable({layer})) gradient.zero_();
        if (rank != 2 || layer % 3 != 0) update.ready(replica, {layer});
      }
      update.reduce(replica);
      update.update(replica, state, optimizer);
    }
  }
}

std::vector<at::Tensor> values_after_leaving(const Leaving& leaving) {
  const auto transports = make_memory_transports(static_cast<int>(leaving.replicas.size()));
  std::vector<at::Tensor> values(4);
  std::vector<core::Thread> processes;
  for (size_t process = 0; process < transports.size(); ++process) {
    processes.emplace_back(core::ThreadOptions{}, [&, process] {
      const int own = leaving.replicas[process];
      const int first =
          std::accumulate(leaving.replicas.begin(), leaving.replicas.begin() + static_cast<std::ptrdiff_t>(process), 0);
      const auto engine = ProcessEngine::start(transports[process], std::chrono::seconds(20));
      VariableUpdateOptions options = leaving_options(leaving, own);
      options.make_communicators = [&] {
        return make_process_communicators(engine, own, std::chrono::seconds(20), choose_algorithm, leaving.host);
      };
      const auto update = variable_updates().get("collective_all_reduce")(options);
      for (int r = 0; r < own; ++r) declare_layers(update->parameters(r));
      update->allocate();
      std::vector<core::Thread> threads;
      for (int r = 0; r < own; ++r) {
        threads.emplace_back(core::ThreadOptions{}, [&, r] {
          const int rank = first + r;
          train_leaving(leaving, *update, r, rank);
          values[static_cast<size_t>(rank)] = update->parameters(r).values().clone();
        });
      }
      for (core::Thread& thread : threads) thread.join();
    });
  }
  for (core::Thread& process : processes) process.join();
  return values;
}

TEST(CollectiveAllReduce, HasTheSameBitsHoweverGradientsLeave) {
  for (Leaving leaving :
       {Leaving{}, Leaving{.two_optimizers = true}, Leaving{.frozen = true}, Leaving{.masked = true}}) {
    // Replicas of one process without an engine, of which nothing leaves early.
    leaving.bucket_bytes = 1 << 20;
    const auto alone = variable_updates().get("replicated")(leaving_options(leaving, 4));
    for (int r = 0; r < 4; ++r) declare_layers(alone->parameters(r));
    alone->allocate();
    std::vector<core::Thread> threads;
    for (int r = 0; r < 4; ++r)
      threads.emplace_back(core::ThreadOptions{}, [&, r] { train_leaving(leaving, *alone, r, r); });
    for (core::Thread& thread : threads) thread.join();
    const at::Tensor wanted = alone->parameters(0).values();
    ASSERT_TRUE(wanted.isfinite().all().item<bool>());
    for (const std::vector<int>& replicas :
         {std::vector{4}, std::vector{2, 2}, std::vector{1, 1, 1, 1}, std::vector{1, 3}}) {
      leaving.replicas = replicas;
      for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{20'000}, int64_t{1} << 40}) {
        // Ranks that share memory have one bucket.
        leaving.host = bytes == 0 ? HostExchange::kSharedMemory : HostExchange::kMessages;
        leaving.bucket_bytes = std::max<int64_t>(bytes, 1);
        for (const at::Tensor& values : values_after_leaving(leaving)) {
          EXPECT_TRUE(values.equal(wanted)) << replicas.size() << " processes, buckets of " << bytes;
        }
      }
    }
  }
}

// The mean, and one replica a process.
TEST(Horovod, HasTheSameBitsHoweverGradientsLeave) {
  std::vector<at::Tensor> values;
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1} << 40}) {
    const HostExchange host = bytes == 0 ? HostExchange::kSharedMemory : HostExchange::kMessages;
    const auto transports = make_memory_transports(3);
    std::vector<at::Tensor> own(3);
    std::vector<core::Thread> processes;
    for (int rank = 0; rank < 3; ++rank) {
      processes.emplace_back(core::ThreadOptions{}, [&, rank] {
        const auto engine = ProcessEngine::start(transports[static_cast<size_t>(rank)], std::chrono::seconds(20));
        const Leaving leaving{.bucket_bytes = std::max<int64_t>(bytes, 1)};
        VariableUpdateOptions options = leaving_options(leaving, 1);
        options.make_communicators = [&] {
          return make_process_communicators(engine, 1, std::chrono::seconds(20), choose_algorithm, host);
        };
        const auto update = variable_updates().get("horovod")(options);
        declare_layers(update->parameters(0));
        update->allocate();
        train_leaving(leaving, *update, 0, rank);
        own[static_cast<size_t>(rank)] = update->parameters(0).values().clone();
      });
    }
    for (core::Thread& process : processes) process.join();
    values.insert(values.end(), own.begin(), own.end());
  }
  ASSERT_TRUE(values[0].isfinite().all().item<bool>());
  for (const at::Tensor& each : values) EXPECT_TRUE(each.equal(values[0]));
}

// The gradients of each replica lie in memory that all ranks share, so that a reduction neither copies nor sends them.
TEST(CollectiveAllReduce, GradientsAreReducedWhereTheyAre) {
  const auto transports = make_memory_transports(2);
  std::vector<core::Thread> processes;
  for (size_t process = 0; process < 2; ++process) {
    processes.emplace_back(core::ThreadOptions{}, [&, process] {
      const int own = process == 0 ? 2 : 1;
      const auto engine = ProcessEngine::start(transports[process], std::chrono::seconds(20));
      VariableUpdateOptions options = leaving_options({.bucket_bytes = 1}, own);
      const SharedMemoryCommunicator* exchange = nullptr;
      options.make_communicators = [&] {
        auto communicators = make_process_communicators(engine, own, std::chrono::seconds(20));
        exchange = dynamic_cast<SharedMemoryCommunicator*>(communicators[0].get());
        return communicators;
      };
      const auto update = variable_updates().get("collective_all_reduce")(options);
      for (int r = 0; r < own; ++r) declare_layers(update->parameters(r));
      update->allocate();
      ASSERT_NE(exchange, nullptr);
      const int64_t copied = exchange->copied_bytes();
      EXPECT_GT(copied, 0) << "counts are gathered, and values broadcast, from other memory";
      const Traffic sent = engine->sent();
      std::vector<core::Thread> threads;
      for (int r = 0; r < own; ++r) {
        threads.emplace_back(core::ThreadOptions{}, [&, r] {
          const at::NoGradGuard without_gradients;
          at::Tensor gradients = update->parameters(r).gradients();
          EXPECT_TRUE(gradients.eq(0).all().item<bool>());
          gradients.fill_(1);
          update->reduce(r);
          EXPECT_TRUE(gradients.eq(3).all().item<bool>());
        });
      }
      for (core::Thread& thread : threads) thread.join();
      EXPECT_EQ(exchange->copied_bytes(), copied);
      EXPECT_EQ(engine->sent(), sent);
    });
  }
  for (core::Thread& process : processes) process.join();
}

TEST(CollectiveAllReduce, NeedsCommunicatorsBetweenProcesses) {
  auto communicators = make_thread_communicators(1);
  VariableUpdateOptions options = options_for(communicators[0]);
  options.make_communicators = {};
  EXPECT_THROW(variable_updates().get("collective_all_reduce")(options), core::Error);
}

// Each rank starts from weights of its own and would make other masks of them; one has none at all.
TEST(Horovod, StartsWithTheMasksOfRank0) {
  for (const bool masked : {true, false}) {
    std::vector<at::Tensor> masks(3), values(3);
    on_processes(3, [&](int rank, auto& communicator) {
      VariableUpdateOptions options = options_for(communicator);
      options.start = [&, rank](nn::ParameterSet& set) {
        const nn::ParameterId id = *set.find("fc.weight");
        if (rank != (masked ? 2 : 0)) set.set_mask(id, set.value(id).gt(0));
      };
      const auto update = make(options);
      update->allocate();
      nn::ParameterSet& set = update->parameters(0);
      const nn::ParameterId id = *set.find("fc.weight");
      masks[static_cast<size_t>(rank)] = set.mask(id);
      const at::NoGradGuard without_gradients;
      set.gradients().fill_(1);
      optim::StepState state;
      state.write({.learning_rate = kRate});
      update->reduce(0);
      update->update(0, state, 0);
      values[static_cast<size_t>(rank)] = set.value(id).clone();
    });
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(masks[rank].defined(), masked) << rank;
      EXPECT_TRUE(values[rank].equal(values[0])) << rank;
      if (!masked) continue;
      EXPECT_TRUE(masks[rank].equal(masks[0])) << rank;
      EXPECT_TRUE(values[rank].ne(0).equal(masks[0])) << rank;
    }
  }
}

// With communicators between processes it sums over all of them, without them over the replicas of this one.
TEST(DistributedAllReduce, IsReplicatedWhereThereIsOneProcess) {
  std::vector<double> start(2), end(2);
  const auto train = [](VariableUpdate& update, int replica, int rank) {
    const at::NoGradGuard guard;
    nn::ParameterSet& set = update.parameters(replica);
    optim::StepState state;
    for (int step = 0; step < 3; ++step) {
      set.gradients().copy_(set.values().mul(0.5).add(rank + step));
      update.reduce(replica);
      state.write({.learning_rate = kRate, .step = step});
      update.update(replica, state);
    }
    return set.values()[0].item<double>();
  };
  const auto make_update = [](const VariableUpdateOptions& options) {
    auto update = variable_updates().get("distributed_all_reduce")(options);
    for (int r = 0; r < options.replicas; ++r) {
      update->parameters(r).declare({.name = "fc.weight", .shape = {5, 7}, .init = nn::Initializer::normal(1.0)});
    }
    update->allocate();
    return update;
  };
  on_processes(2, [&](int rank, std::unique_ptr<core::Communicator>& communicator) {
    const auto update = make_update(options_for(communicator));
    start[static_cast<size_t>(rank)] = update->parameters(0).values()[0].item<double>();
    end[static_cast<size_t>(rank)] = train(*update, 0, rank);
  });
  EXPECT_EQ(start[0], start[1]) << "as rank 0";
  EXPECT_NEAR(end[0], expected(start[0], 2, 3, true), 1e-12);
  EXPECT_EQ(end[0], end[1]);

  Communicators none = make_thread_communicators(1);
  VariableUpdateOptions options = options_for(none[0]);
  options.make_communicators = {};
  options.replicas = 2;
  const auto update = make_update(options);
  const double first = update->parameters(1).values()[0].item<double>();
  std::vector<core::Thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back(core::ThreadOptions{}, [&, r] { end[static_cast<size_t>(r)] = train(*update, r, r); });
  }
  for (core::Thread& thread : threads) thread.join();
  EXPECT_NEAR(end[0], expected(first, 2, 3, true), 1e-12);
  EXPECT_EQ(end[0], end[1]);
}

}  // namespace
}  // namespace trainyard::parallel::process_variable_update_test
