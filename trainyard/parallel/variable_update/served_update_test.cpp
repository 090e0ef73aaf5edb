#include "trainyard/parallel/variable_update/served_update.h"

#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/testing/server_cluster.h"

namespace trainyard::parallel::served_update_test {
namespace {

using ::testing::HasSubstr;

struct Training {
  std::string mode = "parameter_server";
  std::string optimizer = "tf_momentum";
  ClusterOptions cluster{};
  int64_t steps = 5;
  at::ScalarType type = at::kDouble;
  bool delayed = false;  // gradients are applied one update later: variable_consistency=relaxed
  std::optional<optim::Lookahead> lookahead{};
};

ParameterServer::MakeOptimizers made_by(const std::string& name, bool delayed = false,
                                        const std::optional<optim::Lookahead>& lookahead = std::nullopt) {
  return {[=](nn::ParameterSet& set) {
    return optim::optimizers().get(name)(set, {.weight_decay = 0.0625, .delayed = delayed, .lookahead = lookahead});
  }};
}

void declare(VariableUpdate& update, int replicas) {
  for (int r = 0; r < replicas; ++r) {
    update.parameters(r).declare({.name = "conv.weight", .shape = {300, 70}, .init = nn::Initializer::normal(1.0)});
    update.parameters(r).declare({.name = "conv.bias", .shape = {70}, .init = nn::Initializer::normal(1.0)});
    update.parameters(r).declare({.name = "fc.weight", .shape = {70, 11}, .init = nn::Initializer::normal(1.0)});
    update.parameters(r).declare_buffer({.name = "bn.mean", .shape = {5}, .init = nn::Initializer::zeros()});
  }
  update.allocate();
}

// The gradient of sum((w - target)^2) / 2, whose target differs by replica and step: it depends on the values read.
void compute(nn::ParameterSet& set, int replica, int64_t step) {
  set.gradients().copy_(set.values().sub(0.25 * replica - 0.125 * static_cast<double>(step)));
}

VariableUpdateOptions options_of(const Training& training, int replicas) {
  return {.replicas = replicas,
          .parameters = {.dtype = training.type},
          .make_optimizers = made_by(training.optimizer, training.delayed, training.lookahead),
          .reduction =
              training.cluster.reduction == ServerReduction::kMean ? GradientReduction::kMean : GradientReduction::kSum,
          .seed = 3};
}

// Trains `update`'s replicas, whose first is `first` of all, from step `begin` on.
void train(VariableUpdate& update, int replicas, int first, int64_t begin, int64_t end) {
  std::vector<core::Thread> threads;
  for (int r = 0; r < replicas; ++r) {
    threads.emplace_back(core::ThreadOptions{}, [&, r] {
      const at::NoGradGuard without_gradients;
      optim::StepState state;
      for (int64_t step = begin; step < end; ++step) {
        compute(update.parameters(r), first + r, step);
        update.reduce(r);
        state.write({.learning_rate = 0.05, .step = step});
        update.update(r, state);
      }
    });
  }
  for (core::Thread& thread : threads) thread.join();
}

struct Trained {
  core::MemoryState state;
  std::vector<at::Tensor> read;  // by replica of all workers: the values that it reads last
};

Trained train_served(const Training& training, const core::MemoryState* resumed = nullptr, int64_t begin = 0) {
  const int replicas = training.cluster.replicas_per_worker;
  Trained result;
  result.read.resize(static_cast<size_t>(training.cluster.workers) * static_cast<size_t>(replicas));
  ServerCluster cluster(training.cluster, made_by(training.optimizer, training.delayed, training.lookahead));
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    VariableUpdateOptions options = options_of(training, replicas);
    options.servers = group;
    if (worker != 0) options.seed = 99;  // the chief's values count
    const auto update = variable_updates().get(training.mode)(options);
    declare(*update, replicas);
    if (resumed != nullptr) update->load(*resumed);
    train(*update, replicas, worker * replicas, begin, training.steps);
    for (int r = 0; r < replicas; ++r) {
      const int place = worker * replicas + r;
      result.read[static_cast<size_t>(place)] = update->parameters(r).values().clone();
    }
    if (worker == 0) update->save(result.state);
  });
  cluster.wait();
  return result;
}

Trained train_in_one_process(const Training& training, int replicas, const core::MemoryState* resumed = nullptr,
                             int64_t begin = 0) {
  const auto update = variable_updates().get(training.mode)(options_of(training, replicas));
  declare(*update, replicas);
  if (resumed != nullptr) update->load(*resumed);
  train(*update, replicas, 0, begin, training.steps);
  Trained result;
  for (int r = 0; r < replicas; ++r) result.read.push_back(update->parameters(r).values().clone());
  update->save(result.state);
  return result;
}

void expect_same(const core::MemoryState& actual, const core::MemoryState& expected, double tolerance = 0) {
  EXPECT_EQ(actual.names(), expected.names());
  for (const std::string& name : expected.names()) {
    if (!actual.has(name)) continue;
    const at::Tensor difference = (actual.tensor(name) - expected.tensor(name)).abs();
    EXPECT_LE(difference.numel() == 0 ? 0 : difference.max().item<double>(), tolerance) << name;
  }
}

// Three workers of one replica each have the bits of three replicas in one process, and save the same state.
TEST(ServedUpdate, ParameterServerHasTheBitsOfOneProcess) {
  for (const char* const optimizer : {"sgd", "tf_momentum", "tf_adam", "lars"}) {
    const Training training{.optimizer = optimizer, .cluster = {.workers = 3, .servers = 2}, .type = at::kFloat};
    const Trained served = train_served(training), alone = train_in_one_process(training, 3);
    expect_same(served.state, alone.state);
    for (const at::Tensor& read : served.read) EXPECT_TRUE(read.equal(alone.read[0])) << optimizer;
  }
}

TEST(ServedUpdate, DistributedReplicatedHasTheSameNumbersInEachReplica) {
  const Training training{.mode = "distributed_replicated",
                          .cluster = {.workers = 2, .servers = 1, .replicas_per_worker = 2}};
  const Trained served = train_served(training);
  const Trained alone = train_in_one_process({.mode = "parameter_server"}, 4);
  expect_same(served.state, alone.state, 1e-12);
  for (const at::Tensor& read : served.read) EXPECT_TRUE(read.equal(served.read[0]));
}

TEST(ServedUpdate, SumsCountTheDecayOfEveryReplica) {
  const Training training{
      .cluster = {.workers = 2, .servers = 2, .replicas_per_worker = 2, .reduction = ServerReduction::kSum}};
  expect_same(train_served(training).state, train_in_one_process(training, 4).state, 1e-12);
}

// w[k + 1] = update(w[k], gradient(w[k - 1])): exactly one step late, regularization included. Two ways to see it: the
// mode in one process, and the recursion for one element in double precision.
TEST(ServedUpdate, StagedValuesAreOneStepLate) {
  const Training training{.mode = "staged_parameter_server",
                          .cluster = {.workers = 2, .servers = 2, .mode = ServerMode::kStaged}};
  const Trained served = train_served(training), alone = train_in_one_process(training, 2);
  expect_same(served.state, alone.state);
  for (const at::Tensor& read : served.read) EXPECT_TRUE(read.equal(alone.read[0]));

  const Training once{.mode = "staged_parameter_server",
                      .optimizer = "sgd",
                      .cluster = {.workers = 2, .servers = 2, .mode = ServerMode::kStaged},
                      .steps = 0};
  const double start = train_served(once).read[0][7].item<double>();
  double w = start, read = start;
  for (int64_t step = 0; step < training.steps; ++step) {
    const double target = 0.125 - 0.125 * static_cast<double>(step);  // the mean over both replicas
    const double next = w - 0.05 * ((read - target) + 0.0625 * read);
    read = w;
    w = next;
  }
  Training whole = once;
  whole.steps = training.steps;
  EXPECT_NEAR(train_served(whole).read[1][7].item<double>(), read, 1e-13);
}

// w[k + 1] = w[k] - rate * g(w[k - 1]): the gradients, regularization included, are applied exactly one step later.
TEST(ServedUpdate, RelaxedGradientsAreOneStepLate) {
  const Training training{
      .mode = "distributed_replicated", .optimizer = "sgd", .cluster = {.workers = 2, .servers = 2}, .delayed = true};
  Training alone = training;
  alone.mode = "parameter_server";
  const Trained served = train_served(training);
  expect_same(served.state, train_in_one_process(alone, 2).state);
  Training start = training;
  start.steps = 0;
  double w = train_served(start).read[0][7].item<double>(), delayed = 0;
  for (int64_t step = 0; step < training.steps; ++step) {
    const double gradient = w - (0.125 - 0.125 * static_cast<double>(step)) + 0.0625 * w;
    w -= 0.05 * delayed;
    delayed = gradient;
  }
  EXPECT_NEAR(served.read[1][7].item<double>(), w, 1e-13);
  // What is delayed is a part of the checkpoint.
  Training half = training;
  half.steps = 2;
  const Trained saved = train_served(half);
  expect_same(train_served(training, &saved.state, 2).state, served.state);
}

// A checkpoint of the chief holds values, slots and the staged values: training that continues has the same numbers.
TEST(ServedUpdate, ContinuesFromTheChiefsCheckpoint) {
  for (const ServerMode mode : {ServerMode::kSynchronous, ServerMode::kStaged}) {
    Training training{.optimizer = "tf_adam", .cluster = {.workers = 2, .servers = 2, .mode = mode}, .steps = 6};
    const Trained whole = train_served(training);
    training.steps = 3;
    const Trained half = train_served(training);
    training.steps = 6;
    expect_same(train_served(training, &half.state, 3).state, whole.state);
    training.cluster.servers = 1;
    expect_same(train_served(training, &half.state, 3).state, whole.state);
  }
}

// Three updates are in the middle of Lookahead's two: the checkpoint says so, and the servers hear of it.
TEST(ServedUpdate, ContinuesInTheMiddleOfLookahead) {
  Training training{.optimizer = "tf_adam",
                    .cluster = {.workers = 2, .servers = 2},
                    .steps = 7,
                    .lookahead = optim::Lookahead{.steps = 2}};
  const Trained whole = train_served(training);
  expect_same(whole.state, train_in_one_process(training, 2).state);
  training.steps = 3;
  const Trained half = train_served(training);
  training.steps = 7;
  expect_same(train_served(training, &half.state, 3).state, whole.state);
  expect_same(train_in_one_process(training, 2, &half.state, 3).state, whole.state);
}

// As if they were stored so: the servers round what they hold, and not each worker what it reads of it.
TEST(ServedUpdate, VariablesOf16Bits) {
  for (const char* const optimizer : {"tf_momentum", "lars"}) {  // one is cut, the other is not
    Training training{.optimizer = optimizer, .cluster = {.workers = 2, .servers = 2}, .steps = 3, .type = at::kFloat};
    const Trained exact = train_served(training);
    training.cluster.variables_as = at::kBFloat16;
    const Trained rounded = train_served(training);
    const auto is_rounded = [](const at::Tensor& values) {
      return values.to(at::kBFloat16).to(at::kFloat).equal(values);
    };
    for (const char* const name : {"model/conv.weight", "model/fc.weight", "optimizer/fc.weight.momentum"}) {
      EXPECT_FALSE(is_rounded(exact.state.tensor(name))) << name;
      EXPECT_TRUE(is_rounded(rounded.state.tensor(name))) << optimizer << ", " << name;
    }
    EXPECT_TRUE(is_rounded(rounded.read[1]));
    training.steps = 0;
    EXPECT_TRUE(is_rounded(train_served(training).read[1])) << "what the chief has written, too";
  }
}

// What 2 workers with 2 replicas each have saved is continued by one worker with 3 replicas, by one process, and by
// modes without servers, and the other way round.
TEST(ServedUpdate, ModesLoadEachOthersStates) {
  const Training saved{.cluster = {.workers = 2, .servers = 2, .replicas_per_worker = 2}, .steps = 3};
  const Trained first = train_served(saved);
  const Training three{.cluster = {.workers = 1, .servers = 1, .replicas_per_worker = 3}, .steps = 6};
  const Trained continued = train_served(three, &first.state, 3);
  const Trained alone = train_in_one_process({.steps = 6}, 3, &first.state, 3);
  expect_same(continued.state, alone.state, 1e-12);
  const Trained replicated = train_in_one_process({.mode = "replicated", .steps = 6}, 3, &first.state, 3);
  expect_same(replicated.state, alone.state, 1e-12);
  const Trained back = train_served({.cluster = {.workers = 3, .servers = 2}, .steps = 9}, &replicated.state, 6);
  expect_same(back.state, train_in_one_process({.steps = 9}, 3, &replicated.state, 6).state);
}

TEST(ServedUpdate, AsynchronousCountsItsUpdatesAndSavesThem) {
  const Training training{.mode = "asynchronous",
                          .optimizer = "sgd",
                          .cluster = {.workers = 1, .servers = 2, .mode = ServerMode::kAsynchronous}};
  const Trained first = train_served(training);
  EXPECT_EQ(first.state.integer("asynchronous/updates"), 5);
  Training longer = training;
  longer.steps = 9;
  const Trained second = train_served(longer, &first.state, 5);
  EXPECT_EQ(second.state.integer("asynchronous/updates"), 9);
  EXPECT_TRUE(second.state.tensor("model/fc.weight").equal(train_served(longer).state.tensor("model/fc.weight")));
}

TEST(ServedUpdate, ChangedValuesReachServersAndWorkers) {
  const ClusterOptions options{.workers = 2, .servers = 2};
  ServerCluster cluster(options, made_by("sgd"));
  std::array<at::Tensor, 2> values;
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    VariableUpdateOptions own = options_of({.optimizer = "sgd"}, 1);
    own.servers = group;
    const auto update = variable_updates().get("parameter_server")(own);
    declare(*update, 1);
    update->change_values([](nn::ParameterSet& set) { set.values().mul_(2); });
    const at::Tensor doubled = update->parameters(0).values().clone();
    train(*update, 1, worker, 0, 1);
    const double target = 0.125;  // the mean over both
    const at::Tensor expected = doubled - ((doubled - target) + doubled * 0.0625) * 0.05;
    for (const nn::Segment& segment : update->parameters(0).segments()) {
      const at::Tensor difference = update->parameters(0).values() - expected;
      EXPECT_LT(difference.narrow(0, segment.offset, segment.count).abs().max().item<double>(), 1e-13);
    }
    values[static_cast<size_t>(worker)] = update->parameters(0).values().clone();
    EXPECT_THAT(core::message_of([&] { update->broadcast(); }, core::ErrorCode::kUnsupported), HasSubstr("server"));
  });
  EXPECT_TRUE(values[0].equal(values[1]));
}

// Servers would not keep its zeros. A mask may come from a checkpoint, a change of values or the start.
TEST(ServedUpdate, MasksAreRefusedWhereverTheyComeFrom) {
  const auto prune = [](nn::ParameterSet& set) { set.set_mask({0}, set.value({0}).gt(0)); };
  const auto alone = variable_updates().get("parameter_server")(options_of({}, 1));
  declare(*alone, 1);
  alone->change_values(prune);
  core::MemoryState pruned;
  alone->save(pruned);
  const auto refused = HasSubstr("the masks of a pruned model do not work with parameter servers yet");
  for (const bool loads : {false, true}) {
    ServerCluster cluster({.workers = 1, .servers = 1}, made_by("tf_momentum"));
    cluster.on_workers([&](int, const std::shared_ptr<ServerGroup>& group) {
      VariableUpdateOptions options = options_of({}, 1);
      options.servers = group;
      const auto update = variable_updates().get("parameter_server")(options);
      declare(*update, 1);
      const auto give_masks = [&] { loads ? update->load(pruned) : update->change_values(prune); };
      EXPECT_THAT(core::message_of(give_masks, core::ErrorCode::kUnsupported), refused) << loads;
    });
  }
  VariableUpdateOptions options = options_of({}, 1);
  options.start = prune;
  options.servers = std::make_shared<ServerGroup>(ServerGroupOptions{
      .addresses = {"127.0.0.1:1"}, .deadlines = {.start = std::chrono::milliseconds(300)}});  // where nothing listens
  const auto update = variable_updates().get("parameter_server")(options);
  EXPECT_THAT(core::message_of([&] { declare(*update, 1); }, core::ErrorCode::kUnsupported), refused);
}

// loss = mean(x) A B with A = 1, B = 2, x = -1, 0, ..., 14; 2 replicas with 2 images each; decay and rate 2^-4. The
// losses of parameter_server and sgd in double precision, with one worker and two servers.
TEST(ServedUpdate, HasTheLossesOfTheTwoParameterModel) {
  ServerCluster cluster({.workers = 1, .servers = 2, .replicas_per_worker = 2}, made_by("sgd"));
  cluster.on_workers([&](int, const std::shared_ptr<ServerGroup>& group) {
    VariableUpdateOptions options = options_of({.optimizer = "sgd"}, 2);
    options.servers = group;
    const auto update = variable_updates().get("parameter_server")(options);
    for (int r = 0; r < 2; ++r) {
      update->parameters(r).declare({.name = "A", .shape = {}, .init = nn::Initializer::constant(1)});
      update->parameters(r).declare({.name = "B", .shape = {}, .init = nn::Initializer::constant(2)});
    }
    update->allocate();
    constexpr double kRate = 0.0625;
    const std::array<double, 4> expected{1.15625, 8.385638, 5.532262, -9.585484};
    std::array<std::array<double, 2>, 4> losses{};
    std::vector<core::Thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back(core::ThreadOptions{}, [&, r] {
        const at::NoGradGuard without_gradients;
        nn::ParameterSet& set = update->parameters(r);
        const nn::ParameterId a = *set.find("A"), b = *set.find("B");
        optim::StepState state;
        for (int step = 0; step < 4; ++step) {
          const double x = (4 * step + 2 * r - 1 + 4 * step + 2 * r) / 2.0;
          const double va = set.value(a).item<double>(), vb = set.value(b).item<double>();
          losses[static_cast<size_t>(step)][static_cast<size_t>(r)] = x * va * vb + kRate * (va * va + vb * vb) / 2;
          set.gradient(a).fill_(x * vb);
          set.gradient(b).fill_(x * va);
          update->reduce(r);
          state.write({.learning_rate = kRate, .step = step});
          update->update(r, state);
        }
      });
    }
    for (core::Thread& thread : threads) thread.join();
    for (size_t step = 0; step < 4; ++step) {
      EXPECT_NEAR((losses[step][0] + losses[step][1]) / 2, expected[step], 1e-5 * std::abs(expected[step]));
    }
  });
}

TEST(ServedUpdate, RefusesWhatServersDoNotDo) {
  const auto group = std::make_shared<ServerGroup>(ServerGroupOptions{.addresses = {"127.0.0.1:1"}});
  const auto refusal = [&](VariableUpdateOptions options, core::ErrorCode code) {
    options.servers = group;
    return core::message_of([&] { variable_updates().get("parameter_server")(options); }, code);
  };
  EXPECT_THAT(
      refusal(options_of({}, 2), core::ErrorCode::kInvalidArgument),
      core::Says("expected 2 replicas, gradients that are averaged", "got 1 replicas, gradients that are averaged"));
  VariableUpdateOptions sums = options_of({}, 1);
  sums.reduction = GradientReduction::kSum;
  EXPECT_THAT(
      refusal(sums, core::ErrorCode::kInvalidArgument),
      core::Says("expected 1 replicas, gradients that are summed", "got 1 replicas, gradients that are averaged"));
  EXPECT_THAT(core::message_of([] { variable_updates().get("distributed_replicated")(options_of({}, 1)); }),
              HasSubstr("needs parameter servers"));
}

TEST(ServedUpdate, TellsEachReplicaWhetherAnUpdateWasLeftOut) {
  ServerCluster cluster({.workers = 1, .servers = 2, .replicas_per_worker = 2}, made_by("sgd"));
  cluster.on_workers([&](int, const std::shared_ptr<ServerGroup>& group) {
    VariableUpdateOptions options = options_of({.optimizer = "sgd"}, 2);
    options.servers = group;
    const auto update = variable_updates().get("distributed_replicated")(options);
    declare(*update, 2);
    std::vector<core::Thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back(core::ThreadOptions{}, [&, r] {
        const at::NoGradGuard without_gradients;
        optim::StepState state;
        for (int64_t step = 0; step < 3; ++step) {
          const bool left_out = step == 1;
          const at::Tensor before = update->parameters(r).values().clone();
          compute(update->parameters(r), r, step);
          update->reduce(r);
          EXPECT_FALSE(update->gradients_finite(r).has_value()) << "it is not known yet in step " << step;
          state.write({.learning_rate = 0.05, .step = step, .found_inf = left_out});
          update->update(r, state);
          EXPECT_EQ(update->gradients_finite(r), std::optional<bool>(!left_out)) << step;
          EXPECT_EQ(update->parameters(r).values().equal(before), left_out) << step;
        }
      });
    }
    for (core::Thread& thread : threads) thread.join();
  });
}

TEST(ServedUpdate, CountsHowLongReplica0WaitsForOtherWorkers) {
  ServerCluster cluster({.workers = 2, .servers = 1}, made_by("sgd"));
  double waited = 0;
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    VariableUpdateOptions options = options_of({.optimizer = "sgd"}, 1);
    options.servers = group;
    const auto update = variable_updates().get("parameter_server")(options);
    declare(*update, 1);
    const double before = update->waiting_seconds(0);
    if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    train(*update, 1, worker, 0, 1);
    if (worker == 0) waited = update->waiting_seconds(0) - before;
  });
  EXPECT_GT(waited, 0.03);
}

TEST(ServedUpdate, ChangedValuesAreThoseThatAreStagedToo) {
  ServerCluster cluster({.workers = 2, .servers = 2, .mode = ServerMode::kStaged}, made_by("sgd"));
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    VariableUpdateOptions options = options_of({.optimizer = "sgd"}, 1);
    options.servers = group;
    const auto update = variable_updates().get("staged_parameter_server")(options);
    declare(*update, 1);
    train(*update, 1, worker, 0, 3);
    const nn::ParameterSet& served = update->saved_parameters();
    const at::Tensor before = served.values().clone();
    const uint64_t version = served.version();
    EXPECT_FALSE(before.equal(update->parameters(0).values())) << "the servers are one update ahead";
    update->change_values([](nn::ParameterSet& set) { set.values().mul_(2); });
    EXPECT_TRUE(update->parameters(0).values().equal(before * 2)) << worker;
    EXPECT_TRUE(update->saved_parameters().values().equal(before * 2)) << worker;
    EXPECT_GT(served.version(), version);
  });
}

TEST(ServedUpdate, AnAbortEndsTheWaitsOfReplicasAndOfOtherWorkers) {
  ServerCluster cluster({.workers = 2, .servers = 1, .replicas_per_worker = 2}, made_by("sgd"));
  std::array<std::string, 2> errors;
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    VariableUpdateOptions options = options_of({.optimizer = "sgd"}, 2);
    options.servers = group;
    options.deadline = std::chrono::seconds(10);
    const auto update = variable_updates().get("parameter_server")(options);
    declare(*update, 2);
    std::string& own = errors[static_cast<size_t>(worker)];
    const auto note_error = [&own](const std::function<void()>& call) {
      const std::optional<core::Error> error = core::error_of(call);
      own = error ? error->what() : "no error";
    };
    if (worker == 0) {  // waits for worker 1
      optim::StepState state;
      state.write({.learning_rate = 0.05});
      note_error([&] { group->push(update->parameters(0).gradients(), state.read(), *update->optimizer(0, 0), 0); });
      return;
    }
    core::Thread waits({}, [&] { note_error([&] { update->reduce(0); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    update->abort({core::ErrorCode::kNoSpace, "the disk of worker 1 is full"});
    waits.join();
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("the disk of worker 1 is full"));
}

}  // namespace
}  // namespace trainyard::parallel::served_update_test
