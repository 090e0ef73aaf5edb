// Processes as threads: each has a variable update of its own, and they meet by communicators that could be anyone's.
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/exchange/variable_update.h"
#include "trainyard/parallel/mpi/process_communicator.h"
#include "trainyard/parallel/testing/memory_transport.h"
#include "trainyard/parallel/threads/thread_communicator.h"

namespace trainyard::parallel {
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
  on_processes(kProcesses, [&](int rank, auto& communicator) {
    const at::NoGradGuard without_gradients;
    VariableUpdateOptions options = options_for(communicator);
    options.make_optimizers = {
        [](nn::ParameterSet& set) { return optim::optimizers().get("keras_momentum")(set, {}); }};
    const auto update = make(options);
    update->allocate();
    nn::ParameterSet& set = update->parameters(0);
    const at::Tensor slot = update->optimizer(0)->slots()[0].values;
    set.values().add_(rank);
    set.buffer(0).fill_(10 + rank);
    slot.fill_(20 + rank);
    update->broadcast();
    const auto own = static_cast<size_t>(rank);
    values[own] = set.values().clone();
    statistics[own] = set.buffer(0).clone();
    slots[own] = slot.clone();
  });
  for (size_t rank = 0; rank < kProcesses; ++rank) {
    EXPECT_TRUE(values[rank].equal(values[0]));
    EXPECT_TRUE(statistics[rank].eq(10).all().item<bool>());
    EXPECT_TRUE(slots[rank].eq(20).all().item<bool>());
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
    try {
      update->allocate();
      ADD_FAILURE() << "rank " << rank << " went on";
    } catch (const core::Error& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
    }
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
        const auto rank = static_cast<size_t>(first + r);
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

}  // namespace
}  // namespace trainyard::parallel
