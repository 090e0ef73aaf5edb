#include "trainyard/parallel/servers/parameter_server.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/system/system_files.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/testing/free_port.h"
#include "trainyard/parallel/testing/server_cluster.h"
#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::parallel::parameter_server_test {
namespace {

using ::testing::HasSubstr;

ParameterServer::MakeOptimizers optimizer_of(const std::string& name, const optim::OptimizerOptions& options = {}) {
  return {[=](nn::ParameterSet& set) { return optim::optimizers().get(name)(set, options); }};
}

// Whether the weight decay applies to a parameter: a server must hear of it.
bool takes_decay(size_t index) {
  return index % 2 == 0;
}

// What a worker has without a trainer: parameters, and an optimizer that carries numbers.
struct WorkerSet {
  explicit WorkerSet(const ParameterServer::MakeOptimizers& make, const std::vector<nn::Shape>& shapes,
                     at::ScalarType type = at::kDouble)
      : set({.dtype = type}) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      set.declare({.name = fmt::format("w{}", i),
                   .shape = shapes[i],
                   .init = nn::Initializer::normal(1.0),
                   .decay = takes_decay(i)});
    }
    set.allocate();
    set.initialize(7);
    optimizer = make[0](set);
  }
  std::vector<optim::Optimizer*> optimizers() const { return {optimizer.get()}; }
  nn::ParameterSet set;
  std::unique_ptr<optim::Optimizer> optimizer;
};

// Gradients that differ for each worker and step, and by some magnitudes, so that the order of a sum is in its bits.
at::Tensor gradients_of(const nn::ParameterSet& set, int worker, int step) {
  at::Tensor gradients = set.values().clone();
  std::mt19937_64 random(static_cast<uint64_t>(worker * 1000 + step));
  std::uniform_real_distribution<double> numbers(-1, 1);
  for (int64_t i = 0; i < gradients.numel(); ++i) {
    const double number = numbers(random) * std::pow(10.0, worker - 2);
    if (gradients.scalar_type() == at::kDouble) {
      gradients.mutable_data_ptr<double>()[i] = number;
    } else {
      gradients.mutable_data_ptr<float>()[i] = static_cast<float>(number);
    }
  }
  return gradients;
}

constexpr int kSteps = 6;
const std::vector<nn::Shape> kShapes{{37, 41}, {5}, {300, 70}, {}, {64, 3, 3, 3}};

// Returns the values behind kSteps of `cluster.workers` workers, each with its own pauses.
at::Tensor trained(ClusterOptions cluster, const ParameterServer::MakeOptimizers& make, at::ScalarType type,
                   uint64_t pauses, const std::vector<nn::Shape>& shapes = kShapes) {
  ServerCluster servers(cluster, make);
  std::vector<at::Tensor> values(static_cast<size_t>(cluster.workers));
  servers.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    WorkerSet own(make, shapes, type);
    if (worker != 0) own.set.values().fill_(-1);  // the chief's are what counts
    group->join(own.set, own.optimizers());
    group->start(own.set, own.optimizers(), 0);
    std::mt19937_64 random(pauses * 10 + static_cast<uint64_t>(worker));
    for (int step = 0; step < kSteps; ++step) {
      if (pauses > 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      group->push(gradients_of(own.set, worker, step), {.learning_rate = 0.01 * (step + 1), .step = step},
                  *own.optimizer, 0);
      group->read_values(own.set.values());
    }
    values[static_cast<size_t>(worker)] = own.set.values().clone();
  });
  servers.wait();
  for (const at::Tensor& each : values) EXPECT_TRUE(each.equal(values[0]));
  return values[0];
}

// Returns what one process makes of the same gradients, by its own parameter_server mode: the sum in worker order.
at::Tensor trained_in_one_process(int workers, GradientReduction reduction, const ParameterServer::MakeOptimizers& make,
                                  at::ScalarType type, const std::vector<nn::Shape>& shapes = kShapes) {
  const auto update = variable_updates().get("parameter_server")(
      {.replicas = workers, .parameters = {.dtype = type}, .make_optimizers = make, .reduction = reduction, .seed = 7});
  for (int r = 0; r < workers; ++r) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      update->parameters(r).declare({.name = fmt::format("w{}", i),
                                     .shape = shapes[i],
                                     .init = nn::Initializer::normal(1.0),
                                     .decay = takes_decay(i)});
    }
  }
  update->allocate();
  std::vector<core::Thread> threads;
  for (int r = 0; r < workers; ++r) {
    threads.emplace_back(core::ThreadOptions{}, [&, r] {
      const at::NoGradGuard without_gradients;
      optim::StepState state;
      for (int step = 0; step < kSteps; ++step) {
        update->parameters(r).gradients().copy_(gradients_of(update->parameters(r), r, step));
        update->reduce(r);
        state.write({.learning_rate = 0.01 * (step + 1), .step = step});
        update->update(r, state);
      }
    });
  }
  for (core::Thread& thread : threads) thread.join();
  return update->parameters(0).values().clone();
}

TEST(ParameterServer, HasTheBitsOfOneProcessWithAnyNumberOfServers) {
  for (const char* const name : {"sgd", "tf_momentum", "tf_rmsprop", "tf_adam", "lars", "lamb"}) {
    const auto make = optimizer_of(name, {.weight_decay = 0.125});
    for (const bool mean : {true, false}) {
      const at::Tensor expected =
          trained_in_one_process(3, mean ? GradientReduction::kMean : GradientReduction::kSum, make, at::kFloat);
      for (const int servers : {1, 3}) {
        const at::Tensor values = trained(
            {.workers = 3, .servers = servers, .reduction = mean ? ServerReduction::kMean : ServerReduction::kSum},
            make, at::kFloat, 0);
        EXPECT_TRUE(values.equal(expected)) << name << " with " << servers << " servers, mean " << mean;
      }
    }
  }
}

TEST(ParameterServer, TwentyRunsWithOtherPausesHaveTheSameBits) {
  const auto make = optimizer_of("tf_momentum");
  const at::Tensor expected = trained_in_one_process(4, GradientReduction::kMean, make, at::kFloat);
  for (uint64_t run = 1; run <= 20; ++run) {
    EXPECT_TRUE(trained({.workers = 4, .servers = 2}, make, at::kFloat, run).equal(expected)) << run;
  }
}

TEST(ParameterServer, ClipsByNormOnOneServerAndRefusesSeveral) {
  const auto make = optimizer_of("sgd", {.norm_clip = optim::NormClip{.bound = 0.5}});
  const at::Tensor expected = trained_in_one_process(2, GradientReduction::kMean, make, at::kDouble);
  EXPECT_TRUE(trained({.workers = 2, .servers = 1}, make, at::kDouble, 0).equal(expected));
  EXPECT_THAT(core::message_of([&] { trained({.workers = 1, .servers = 2}, make, at::kDouble, 0); },
                               core::ErrorCode::kUnsupported),
              HasSubstr("cannot be clipped by their global norm"));
}

// Both have the same slots and hyperparameters, and other numbers.
TEST(ParameterServer, RefusesAWorkerWithAnotherOptimizer) {
  ServerCluster servers({.workers = 1, .servers = 1}, optimizer_of("tf_momentum"));
  const auto refusal = [&](const std::string& name, const optim::OptimizerOptions& options) {
    WorkerSet own(optimizer_of(name, options), kShapes);
    return core::message_of([&] { servers.join(0)->join(own.set, own.optimizers()); });
  };
  ::testing::internal::CaptureStderr();
  const std::string message = refusal("tf_nesterov", {});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(message, HasSubstr("different optimizers"));
  EXPECT_THAT(message, HasSubstr("expected optimizer tf_momentum, got optimizer tf_nesterov"));
  EXPECT_THAT(log, HasSubstr("parameter server 0 refuses worker 0: "));
  EXPECT_THAT(log, HasSubstr("got optimizer tf_nesterov"));
  EXPECT_THAT(refusal("tf_momentum", {.gradient_clip = 0.5}),
              HasSubstr("expected gradient clip none, got gradient clip 0.5"));
  // Those that were refused have decided nothing, and numbers that come with each step may differ.
  EXPECT_EQ(refusal("tf_momentum", {.numbers = {{"momentum", 0.5}}, .weight_decay = 0.125}), "no error");
}

// Servers own parts that are balanced to within 16,384 elements where formulas allow it, and else within a tensor;
// there may be more servers than tensors.
TEST(ParameterServer, DividesTheParameters) {
  const std::vector<nn::Shape> uneven{{1000, 1000}, {10}, {100}};
  for (const auto& [name, servers] : {std::pair("sgd", 3), std::pair("lamb", 3), std::pair("sgd", 5)}) {
    const auto make = optimizer_of(name);
    ServerCluster cluster({.workers = 1, .servers = servers}, make);
    cluster.on_workers([&, name = name, servers = servers](int, const std::shared_ptr<ServerGroup>& group) {
      WorkerSet own(make, uneven, at::kFloat);
      group->join(own.set, own.optimizers());
      const std::vector<int64_t> boundaries = group->boundaries();
      ASSERT_EQ(boundaries.size(), static_cast<size_t>(servers) + 1);
      EXPECT_EQ(boundaries.front(), 0);
      EXPECT_EQ(boundaries.back(), own.set.total());
      const int64_t share = own.set.total() / servers;
      const int64_t slack = std::string(name) == "lamb" ? 1000 * 1000 : 16384;
      for (size_t s = 0; s + 1 < boundaries.size(); ++s) {
        EXPECT_LE(std::abs(boundaries[s + 1] - boundaries[s] - share), slack) << name << " " << s;
      }
    });
  }
  const std::vector<nn::Shape> few{{}, {}};
  const auto make = optimizer_of("tf_adam");
  EXPECT_TRUE(trained({.workers = 2, .servers = 4}, make, at::kDouble, 0, few)
                  .equal(trained_in_one_process(2, GradientReduction::kMean, make, at::kDouble, few)));
}

// An optimizer that must see whole tensors: each server begins with the tensor that begins the nearest to its share.
TEST(ParameterServer, BeginsAtTheNearestTensor) {
  const auto boundaries_of = [](int servers) {
    ServerCluster cluster({.workers = 1, .servers = servers}, optimizer_of("lamb"));
    std::vector<int64_t> boundaries;
    cluster.on_workers([&](int, const std::shared_ptr<ServerGroup>& group) {
      WorkerSet own(optimizer_of("lamb"), {{1024}, {1024}, {1024}, {1024}}, at::kFloat);
      group->join(own.set, own.optimizers());
      boundaries = group->boundaries();
    });
    return boundaries;
  };
  EXPECT_EQ(boundaries_of(2), (std::vector<int64_t>{0, 2048, 4096}));
  EXPECT_EQ(boundaries_of(3), (std::vector<int64_t>{0, 1024, 3072, 4096}));
}

// w[n] = w[0] - rate * (sum of all pushes), in whatever order they come; the servers' count is that of all workers.
TEST(ParameterServer, AsynchronousLosesNoPushOfASlowWorker) {
  constexpr int kWorkers = 3;
  const std::vector<int> pushes{40, 40, 7};  // the last one is slow
  const auto make = optimizer_of("sgd");
  ServerCluster cluster({.workers = kWorkers, .servers = 2, .mode = ServerMode::kAsynchronous}, make);
  at::Tensor start, end;
  std::atomic<int> done = 0;
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    const at::NoGradGuard without_gradients;
    WorkerSet own(make, kShapes);
    if (worker == 0) start = own.set.values().clone();
    group->join(own.set, own.optimizers());
    group->start(own.set, own.optimizers(), 100);
    for (int push = 0; push < pushes[static_cast<size_t>(worker)]; ++push) {
      if (worker == 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      group->push(own.set.gradients().fill_(worker + 1.0), {.learning_rate = 0.01}, *own.optimizer, 0);
      group->read_values(own.set.values());
      EXPECT_GE(group->updates(), 100 + push + 1);
    }
    if (++done == kWorkers) {
      EXPECT_EQ(group->read_state(own.set.values(), own.optimizers()), 187);
      end = own.set.values().clone();
    }
    while (done < kWorkers) std::this_thread::yield();
  });
  cluster.wait();
  for (int s = 0; s < 2; ++s) {
    const ParameterServer::Status status = cluster.server(s).status();
    EXPECT_EQ(status.updates, 187);
    EXPECT_THAT(status.pushes, ::testing::ElementsAre(40, 40, 7));
  }
  const double sum = 40 * 1 + 40 * 2 + 7 * 3;
  WorkerSet shape(make, kShapes);
  for (const nn::Segment& segment : shape.set.segments()) {
    const at::Tensor moved =
        end.narrow(0, segment.offset, segment.count) - start.narrow(0, segment.offset, segment.count);
    EXPECT_LT((moved + 0.01 * sum).abs().max().item<double>(), 1e-11);
  }
}

// One worker alone gets what its pushes make, one after the other: the numbers of the optimizer in one process.
TEST(ParameterServer, AsynchronousWithOneWorkerIsTheOptimizer) {
  const auto make = optimizer_of("tf_adam", {.weight_decay = 0.125});
  EXPECT_TRUE(trained({.workers = 1, .servers = 2, .mode = ServerMode::kAsynchronous}, make, at::kDouble, 0)
                  .equal(trained_in_one_process(1, GradientReduction::kMean, make, at::kDouble)));
}

// A push of a sum has the decay of this worker's replicas, not that of all workers.
TEST(ParameterServer, AsynchronousSumsCountTheDecayOfTheirOwnReplicas) {
  const auto make = optimizer_of("tf_momentum", {.weight_decay = 0.125});
  ServerCluster cluster({.workers = 2,
                         .servers = 2,
                         .replicas_per_worker = 2,
                         .mode = ServerMode::kAsynchronous,
                         .reduction = ServerReduction::kSum},
                        make);
  WorkerSet alone(make, kShapes);
  alone.optimizer->set_weight_decay_factor(2);
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    WorkerSet own(make, kShapes);
    group->join(own.set, own.optimizers());
    group->start(own.set, own.optimizers(), 0);
    if (worker != 0) return;
    const at::Tensor gradients = gradients_of(own.set, 0, 0);
    group->push(gradients, {.learning_rate = 0.1}, *own.optimizer, 0);
    group->read_values(own.set.values());
    optim::StepState state;
    state.write({.learning_rate = 0.1});
    alone.optimizer->apply(state, gradients);
    EXPECT_TRUE(own.set.values().equal(alone.set.values()));
  });
}

// A step counts its learning rate, hyperparameters and frozen parameters as the chief has them.
TEST(ParameterServer, FollowsHyperparametersAndFrozenParameters) {
  const auto make = optimizer_of("tf_momentum");
  ServerCluster cluster({.workers = 1, .servers = 2}, make);
  WorkerSet alone(make, kShapes);
  cluster.on_workers([&](int, const std::shared_ptr<ServerGroup>& group) {
    WorkerSet own(make, kShapes);
    group->join(own.set, own.optimizers());
    group->start(own.set, own.optimizers(), 0);
    for (int step = 0; step < 4; ++step) {
      for (WorkerSet* each : {&own, &alone}) {
        each->optimizer->set_hyperparameter("momentum", 0.5 + step * 0.1);
        each->set.set_trainable({2}, step != 1 && step != 2);
      }
      const at::Tensor gradients = gradients_of(own.set, 0, step);
      const optim::StepValues values{.learning_rate = 0.1, .found_inf = step == 3};
      group->push(gradients, values, *own.optimizer, 0);
      group->read_values(own.set.values());
      optim::StepState state;
      state.write(values);
      alone.optimizer->apply(state, gradients);
      EXPECT_TRUE(own.set.values().equal(alone.set.values())) << step;
    }
    group->read_state(own.set.values(), own.optimizers());
    EXPECT_TRUE(own.optimizer->slots()[0].values.equal(alone.optimizer->slots()[0].values));
  });
}

// Returns the error of the training of two workers, each of which `change` changes, and which push these numbers.
std::string error_of_workers(const std::function<void(int, WorkerSet&)>& change,
                             const std::vector<optim::StepValues>& pushed = {{.learning_rate = 0.1},
                                                                             {.learning_rate = 0.1}}) {
  const auto make = optimizer_of("tf_momentum", {.weight_decay = 0.125});
  ServerCluster cluster({.workers = 2, .servers = 2}, make);
  std::vector<std::string> errors(2);
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    WorkerSet own(make, kShapes);
    change(worker, own);
    group->join(own.set, own.optimizers());
    group->start(own.set, own.optimizers(), 0);
    const auto index = static_cast<size_t>(worker);
    errors[index] =
        core::message_of([&] { group->push(gradients_of(own.set, worker, 0), pushed[index], *own.optimizer, 0); },
                         core::ErrorCode::kPeerFailed);
  });
  EXPECT_EQ(errors[0], errors[1]);
  return errors[0];
}

std::string error_of_other_worker(const std::function<void(WorkerSet&)>& change) {
  return error_of_workers([&](int worker, WorkerSet& own) {
    if (worker == 1) change(own);
  });
}

TEST(ParameterServer, WorkersMustPushTheSameNumbers) {
  const auto unchanged = [](int, WorkerSet&) {};
  const optim::StepValues first{.learning_rate = 0.5, .inverse_loss_scale = 0.25, .step = 3};
  const std::string expected =
      "workers do not make the same update: worker 1: expected optimizer 0, learning rate 0.5, loss scale 4, global "
      "step 3 as worker 0, got optimizer 0, ";
  EXPECT_EQ(error_of_workers(unchanged, {first, first}), "no error");
  optim::StepValues other = first;
  other.learning_rate = 0.25;
  EXPECT_THAT(error_of_workers(unchanged, {first, other}),
              HasSubstr(expected + "learning rate 0.25, loss scale 4, global step 3;"));
  other = first;
  other.inverse_loss_scale = 0.125;
  EXPECT_THAT(error_of_workers(unchanged, {first, other}),
              HasSubstr(expected + "learning rate 0.5, loss scale 8, global step 3;"));
  other = first;
  other.step = 4;
  EXPECT_THAT(error_of_workers(unchanged, {first, other}),
              HasSubstr(expected + "learning rate 0.5, loss scale 4, global step 4;"));
}

TEST(ParameterServer, TheFirstParameterThatOnlyOneFreezesIsNamed) {
  const auto error_of = [](int frozen_by_chief, int frozen_by_other) {
    return error_of_workers([&](int worker, WorkerSet& own) {
      const int frozen = worker == 0 ? frozen_by_chief : frozen_by_other;
      if (frozen >= 0) own.set.set_trainable({frozen}, false);
    });
  };
  EXPECT_EQ(error_of(2, 2), "no error");
  EXPECT_THAT(error_of(2, -1), HasSubstr("worker 1: expected w2 frozen as worker 0, got w2 trained"));
  EXPECT_THAT(error_of(1, 3), HasSubstr("worker 1: expected w1 frozen as worker 0, got w1 trained"));
  EXPECT_THAT(error_of(3, 1), HasSubstr("worker 1: expected w1 trained as worker 0, got w1 frozen"));
}

TEST(ParameterServer, WorkersMustMeanTheSameUpdate) {
  EXPECT_EQ(error_of_other_worker([](WorkerSet&) {}), "no error");
  EXPECT_THAT(error_of_other_worker([](WorkerSet& own) { own.optimizer->set_hyperparameter("momentum", 0.5); }),
              HasSubstr("workers do not make the same update: worker 1: expected momentum 0.9 as worker 0, got "
                        "momentum 0.5"));
  EXPECT_THAT(error_of_other_worker([](WorkerSet& own) { own.optimizer->set_hyperparameter("weight_decay", 0.25); }),
              HasSubstr("expected weight_decay 0.125 as worker 0, got weight_decay 0.25"));
  EXPECT_THAT(error_of_other_worker([](WorkerSet& own) { own.set.set_trainable({2}, false); }),
              HasSubstr("expected w2 trained as worker 0, got w2 frozen"));
}

// The server's own flags say another momentum, and nothing of what is frozen.
TEST(ParameterServer, AsynchronousWorkersNeedNotWaitForTheChiefsNumbers) {
  ServerCluster cluster({.workers = 2, .servers = 1, .mode = ServerMode::kAsynchronous}, optimizer_of("tf_momentum"));
  const auto make = optimizer_of("tf_momentum", {.numbers = {{"momentum", 0.5}}});
  WorkerSet alone(make, kShapes);
  alone.set.set_trainable({2}, false);
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    WorkerSet own(make, kShapes);
    own.set.set_trainable({2}, false);
    group->join(own.set, own.optimizers());
    group->start(own.set, own.optimizers(), 0);
    for (int step = 0; worker == 1 && step < 3; ++step) {
      const at::Tensor gradients = gradients_of(own.set, 1, step);
      group->push(gradients, {.learning_rate = 0.1}, *own.optimizer, 0);
      optim::StepState state;
      state.write({.learning_rate = 0.1});
      alone.optimizer->apply(state, gradients);
    }
    if (worker != 1) return;
    group->read_values(own.set.values());
    EXPECT_TRUE(own.set.values().equal(alone.set.values()));
  });
}

// One worker whose gradients are not finite is enough to leave a step out, for values and slots.
TEST(ParameterServer, ASkippedStepIsSkippedForAll) {
  const auto make = optimizer_of("tf_adam");
  ServerCluster cluster({.workers = 2, .servers = 2}, make);
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    WorkerSet own(make, kShapes);
    group->join(own.set, own.optimizers());
    group->start(own.set, own.optimizers(), 0);
    const at::Tensor start = own.set.values().clone();
    const at::Tensor gradients = gradients_of(own.set, worker, 0);
    EXPECT_TRUE(group->push(gradients, {.learning_rate = 0.1, .found_inf = worker == 1}, *own.optimizer, 0))
        << "each worker hears of it";
    group->read_values(own.set.values());
    EXPECT_TRUE(own.set.values().equal(start));
    EXPECT_EQ(group->updates(), 1);
    EXPECT_FALSE(group->push(gradients, {.learning_rate = 0.1}, *own.optimizer, 0));
    group->read_values(own.set.values());
    EXPECT_FALSE(own.set.values().equal(start));
    if (worker != 0) return;
    group->read_state(own.set.values(), own.optimizers());
    EXPECT_EQ(own.optimizer->update_count()[0].item<double>(), 1);
  });
}

// A block of 40 MB is ten times gRPC's limit. Each of its bytes is copied once on each side that receives it, and never
// by the one that sends.
TEST(ParameterServer, CopiesWhatItReceivesOnce) {
  const auto make = optimizer_of("sgd");
  const std::vector<nn::Shape> large{{2500, 4000}, {17}};
  ServerCluster cluster({.workers = 2, .servers = 3}, make);
  constexpr int64_t kLargeSteps = 3;
  int64_t bytes = 0;
  std::atomic<int64_t> read = 0;
  cluster.on_workers([&](int worker, const std::shared_ptr<ServerGroup>& group) {
    WorkerSet own(make, large, at::kFloat);
    if (worker == 0) bytes = static_cast<int64_t>(own.set.values().nbytes());
    group->join(own.set, own.optimizers());
    group->start(own.set, own.optimizers(), 0);
    for (int step = 0; step < kLargeSteps; ++step) {
      group->push(own.set.gradients(), {.learning_rate = 0.1}, *own.optimizer, 0);
      group->read_values(own.set.values());
    }
    read += group->copied_bytes();
  });
  int64_t received = 0, copied = 0;
  for (int s = 0; s < 3; ++s) {
    received += cluster.server(s).status().received_bytes;
    copied += cluster.server(s).status().copied_bytes;
  }
  EXPECT_EQ(received, bytes * (1 + 2 * kLargeSteps));  // the chief's start, and each push
  EXPECT_EQ(copied, received);
  EXPECT_EQ(read, bytes * (1 + 2 * kLargeSteps));  // the other's start, and each step
}

// Returns the bytes of a large model: 1 GiB where that leaves room, for its values, gradients and the servers' copies
// of both; else the most of 48 MiB, which are still several chunks a server.
int64_t large_model_bytes() {
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  const bool has_room = core::memory_info_bytes("MemAvailable") > 8 * static_cast<uint64_t>(kGibibyte);
  return has_room ? kGibibyte : 48 * (kGibibyte / 1024);
}

// Values and gradients have periods that no chunk has, so that elements in another place are other elements; all
// numbers are halves, which floats hold exactly.
TEST(ParameterServer, AModelOfAGigabyteGoesThroughThreeServers) {
  constexpr int64_t kValuePeriod = 8191, kGradientPeriod = 127;
  const int64_t elements = large_model_bytes() / static_cast<int64_t>(sizeof(float));
  const auto make = optimizer_of("sgd");
  nn::ParameterSet set({.dtype = at::kFloat});
  // One tensor has more than a server's share.
  const int64_t large = elements / 8 * 5, middle = elements / 4;
  for (const int64_t count : {large, middle, elements - large - middle}) {
    set.declare({.name = fmt::format("w{}", set.size()), .shape = {count}, .init = nn::Initializer::zeros()});
  }
  set.allocate();
  const std::unique_ptr<optim::Optimizer> optimizer = make[0](set);
  auto* const values = set.values().mutable_data_ptr<float>();
  auto* const gradients = set.gradients().mutable_data_ptr<float>();
  for (int64_t i = 0; i < set.total(); ++i) {
    values[i] = static_cast<float>(i % kValuePeriod);
    gradients[i] = static_cast<float>(i % kGradientPeriod);
  }

  ServerCluster cluster({.workers = 1, .servers = 3}, make);
  const auto group = cluster.join(0);
  group->join(set, {optimizer.get()});
  group->start(set, {optimizer.get()}, 0);
  group->push(set.gradients(), {.learning_rate = 0.5}, *optimizer, 0);
  set.values().zero_();
  group->read_values(set.values());
  const std::vector<int64_t> boundaries = group->boundaries();
  group->leave();
  cluster.wait();

  int64_t wrong = 0;
  for (const nn::Segment& segment : set.segments()) {
    for (int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
      wrong +=
          values[i] == static_cast<float>(i % kValuePeriod) - 0.5F * static_cast<float>(i % kGradientPeriod) ? 0 : 1;
    }
  }
  EXPECT_EQ(wrong, 0);
  const int64_t bytes = set.total() * static_cast<int64_t>(sizeof(float));
  EXPECT_GE(bytes, large_model_bytes());
  ASSERT_EQ(boundaries.size(), 4U);
  constexpr int64_t kCut = 16384;  // elements
  for (int s = 0; s < 3; ++s) {
    const auto at = static_cast<size_t>(s);
    EXPECT_NEAR(static_cast<double>(boundaries[at + 1] - boundaries[at]), static_cast<double>(set.total()) / 3,
                2 * kCut);
  }
  EXPECT_EQ(group->copied_bytes(), bytes);
}

}  // namespace
}  // namespace trainyard::parallel::parameter_server_test
