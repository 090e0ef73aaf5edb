// Updates that are divided among ranks against updates of all parameters by every rank: bits, slots, states.
#include "trainyard/parallel/variable_update/sharded_update.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/remainder.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/formula_optimizer.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/connected_ranks.h"
#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::parallel::sharded_update_test {
namespace {

using core::Communicator, core::Error, core::ErrorCode, ::testing::HasSubstr;
using Use = Sharding::Use;
using Gradients = std::function<void(nn::ParameterSet& set, int rank, int64_t step)>;

// How a training's ranks meet.
enum class Meeting { kThreads, kSharedMemory, kMessages };

Communicators ranks_of(int ranks, Meeting meeting) {
  if (meeting == Meeting::kThreads) return make_thread_communicators(ranks);
  const std::vector<int> replicas(static_cast<size_t>(ranks), 1);
  const auto engines = make_engines(ranks);
  return meeting == Meeting::kSharedMemory ? connect_by_memory(engines, replicas) : connect(engines, replicas);
}

struct Training {
  std::string optimizer = "tf_momentum";
  optim::OptimizerOptions options{};
  Sharding sharding{};
  std::string mode = "horovod";
  at::ScalarType dtype = at::kFloat;
  std::chrono::milliseconds deadline = std::chrono::seconds(20);
  bool large = false;  // 4 MiB more of parameters
  nn::Shape more{};    // of one more parameter; empty: none
};

// Several parts of an update (optim::kPartElements): parameters that are smaller than one, and that are cut.
void declare(nn::ParameterSet& set) {
  set.declare({.name = "conv.weight", .shape = {70, 601}, .init = nn::Initializer::normal(0.5)});
  set.declare({.name = "conv.bias", .shape = {13}, .init = nn::Initializer::normal(0.5), .decay = false});
  set.declare({.name = "body.weight", .shape = {150, 200}, .init = nn::Initializer::normal(0.5)});
  set.declare({.name = "frozen.weight", .shape = {17, 3}, .init = nn::Initializer::normal(0.5)});
  set.declare({.name = "fc.weight", .shape = {10, 333}, .init = nn::Initializer::normal(0.5)});
}

std::unique_ptr<VariableUpdate> make(const Training& training, std::unique_ptr<Communicator>& communicator) {
  auto update = variable_updates().get(training.mode)({.parameters = {.dtype = training.dtype},
                                                       .make_communicators =
                                                           [&communicator] {
                                                             Communicators one;
                                                             one.push_back(std::move(communicator));
                                                             return one;
                                                           },
                                                       .make_optimizers = {[&training](nn::ParameterSet& set) {
                                                         return optim::optimizers().get(training.optimizer)(
                                                             set, training.options);
                                                       }},
                                                       .seed = 7,
                                                       .deadline = training.deadline,
                                                       .sharding = training.sharding});
  declare(update->parameters(0));
  if (training.large) update->parameters(0).declare({.name = "large.weight", .shape = {1024, 1024}});
  if (!training.more.empty()) update->parameters(0).declare({.name = "more.weight", .shape = training.more});
  update->allocate();
  return update;
}

// Calls work(rank, update) on a thread for each rank. Returns each rank's error.
std::vector<std::optional<Error>> on_updates(const Training& training, Communicators communicators,
                                             const std::function<void(int, VariableUpdate&)>& work) {
  std::vector<std::optional<Error>> errors(communicators.size());
  std::vector<core::Thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back(core::ThreadOptions{.name = "rank"}, [&, rank] {
      const at::NoGradGuard without_gradients;
      try {
        const auto update = make(training, communicators[rank]);
        work(static_cast<int>(rank), *update);
      } catch (const Error& error) {
        errors[rank] = error;
      }
    });
  }
  for (core::Thread& thread : threads) thread.join();
  return errors;
}

void random_gradients(nn::ParameterSet& set, int rank, int64_t step) {
  core::RandomStream stream(3, "gradients", {static_cast<uint64_t>(rank), static_cast<uint64_t>(step)});
  for (const nn::Segment& segment : set.segments()) {
    const at::Tensor gradient = set.gradients().narrow(0, segment.offset, segment.count);
    const at::Tensor numbers = gradient.to(at::kFloat);
    for (int64_t i = 0; i < segment.count; ++i) numbers.mutable_data_ptr<float>()[i] = stream.normal();
    gradient.copy_(numbers);
  }
}

// Of few bits and the same on all ranks: their mean is exact over any number of ranks.
void exact_gradients(nn::ParameterSet& set, int, int64_t step) {
  for (const nn::Segment& segment : set.segments()) {
    const at::Tensor numbers = at::arange(segment.count).mul(7).add(13 * step + segment.offset);
    set.gradients().narrow(0, segment.offset, segment.count).copy_(at::remainder(numbers, 101).sub(50).div(64));
  }
}

void run_steps(VariableUpdate& update, int rank, int64_t first, int64_t last, const Gradients& gradients) {
  optim::StepState state;
  for (int64_t step = first; step < last; ++step) {
    gradients(update.parameters(0), rank, step);
    update.reduce(0);
    const bool skipped = step == 2;
    state.write({.learning_rate = 0.02 / (1.0 + static_cast<double>(step)),
                 .inverse_loss_scale = 0.5,
                 .step = step,
                 .found_inf = skipped});
    update.update(0, state);
  }
}

// The values of all ranks after some steps, with a mask and a parameter that is frozen.
std::vector<at::Tensor> train(const Training& training, int ranks, Meeting meeting, bool sharded) {
  std::vector<at::Tensor> values(static_cast<size_t>(ranks));
  expect_none(on_updates(training, ranks_of(ranks, meeting), [&](int rank, VariableUpdate& update) {
    EXPECT_EQ(update.sharded(), sharded);
    nn::ParameterSet& set = update.parameters(0);
    set.set_trainable(*set.find("frozen.weight"), false);
    const nn::ParameterId masked = *set.find("body.weight");
    set.set_mask(masked, set.value(masked).gt(0));
    run_steps(update, rank, 0, 5, random_gradients);
    values[static_cast<size_t>(rank)] = set.values().clone();
  }));
  return values;
}

void expect_equal(const std::vector<at::Tensor>& values, const at::Tensor& expected, const std::string& where) {
  for (size_t rank = 0; rank < values.size(); ++rank) {
    EXPECT_TRUE(values[rank].equal(expected)) << where << ", rank " << rank << " of " << values.size() << ": "
                                              << values[rank].ne(expected).sum().item<int64_t>() << " elements differ";
  }
}

class ShardedUpdates : public testing::TestWithParam<std::string> {
 protected:
  static Training training(Use use, bool decides_before = true) {
    return {.optimizer = GetParam(),
            .options = {.weight_decay = 0.01,
                        .gradient_clip = 1.5,
                        .groups = {{.pattern = "fc.*", .rate_factor = 0.5}},
                        .regularization = {{.name = "l1",
                                            .pattern = "conv.weight",
                                            .kind = optim::RegularizationKind::kL1,
                                            .coefficient = 0.001}}},
            .sharding = {.use = use, .decides_before_update = decides_before}};
  }
};

TEST_P(ShardedUpdates, HaveTheBitsOfUpdatesByEveryRank) {
  for (const int ranks : {1, 2, 3, 4}) {
    const std::vector<at::Tensor> whole = train(training(Use::kNever), ranks, Meeting::kThreads, false);
    for (const bool decides_before : {true, false}) {
      for (const Meeting meeting : {Meeting::kThreads, Meeting::kSharedMemory}) {
        if (ranks == 1 && meeting == Meeting::kSharedMemory) continue;
        expect_equal(train(training(Use::kAlways, decides_before), ranks, meeting, ranks > 1), whole[0],
                     fmt::format("decides_before_update={}, meeting {}", decides_before, static_cast<int>(meeting)));
      }
    }
  }
}

std::vector<std::string> formulas_of_elements() {
  std::vector<std::string> names = optim::optimizer_formulas().names();
  std::erase_if(names, [](const std::string& name) {
    return name == "lars" || name == "lamb" || name.starts_with("muon_") || name.starts_with("schedule_free_");
  });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ShardedUpdates, testing::ValuesIn(formulas_of_elements()),
                         [](const auto& tested) { return tested.param; });

TEST(ShardedUpdate, SumsAndDoublesAndReplicasOfAProcessHaveTheirBits) {
  for (const bool decides_before : {true, false}) {
    Training training{.optimizer = "torch_adamw", .mode = "collective_all_reduce", .dtype = at::kDouble};
    const std::vector<at::Tensor> whole = train(training, 3, Meeting::kThreads, false);
    training.sharding = {.use = Use::kAlways, .decides_before_update = decides_before};
    expect_equal(train(training, 3, Meeting::kSharedMemory, true), whole[0], "sums of doubles");
  }
}

// One process with replicas on threads, as --variable_update=replicated has them.
TEST(ShardedUpdate, ReplicasOfOneProcessDivideIt) {
  std::vector<at::Tensor> values;
  for (const Use use : {Use::kNever, Use::kAlways}) {
    const auto update = variable_updates().get("replicated")(
        {.replicas = 3,
         .make_optimizers = {[](nn::ParameterSet& set) { return optim::optimizers().get("tf_rmsprop")(set, {}); }},
         .seed = 7,
         .sharding = {.use = use}});
    for (int r = 0; r < 3; ++r) declare(update->parameters(r));
    update->allocate();
    EXPECT_EQ(update->sharded(), use == Use::kAlways);
    std::vector<core::Thread> threads;
    for (int r = 0; r < 3; ++r) {
      threads.emplace_back(core::ThreadOptions{}, [&, r] {
        const at::NoGradGuard without_gradients;
        optim::StepState state;
        for (int64_t step = 0; step < 3; ++step) {
          random_gradients(update->parameters(r), r, step);
          update->reduce(r);
          state.write({.learning_rate = 0.01, .step = step});
          update->update(r, state);
        }
      });
    }
    for (core::Thread& thread : threads) thread.join();
    for (int r = 0; r < 3; ++r) values.push_back(update->parameters(r).values().clone());
  }
  expect_equal(values, values[0], "replicated");
}

TEST(ShardedUpdate, SlotsAreDividedAmongRanks) {
  for (const int ranks : {2, 3, 4}) {
    std::vector<int64_t> bytes(static_cast<size_t>(ranks));
    std::atomic<int64_t> whole = 0;
    const Training training{.optimizer = "torch_adam", .sharding = {.use = Use::kAlways}};
    expect_none(on_updates(training, ranks_of(ranks, Meeting::kSharedMemory), [&](int rank, VariableUpdate& update) {
      bytes[static_cast<size_t>(rank)] = update.optimizer_bytes();
      whole = 2 * static_cast<int64_t>(update.parameters(0).values().nbytes());
      int64_t counted = 0;
      for (const optim::Optimizer::Slot& slot : update.optimizer(0)->slots()) {
        counted += static_cast<int64_t>(slot.values.nbytes());
      }
      EXPECT_EQ(counted, update.optimizer_bytes());
    }));
    int64_t sum = 0;
    for (const int64_t own : bytes) {
      sum += own;
      constexpr int64_t kPartBytes = 2 * 16384 * 4;  // of both slots: a part belongs to one rank
      EXPECT_NEAR(static_cast<double>(own), static_cast<double>(whole) / ranks, kPartBytes);
    }
    EXPECT_EQ(sum, whole);
  }
}

// Trains `steps` of all on this many ranks, from a state or from the start. Returns rank 0's state afterwards.
std::shared_ptr<core::MemoryState> continue_training(const Training& training, int ranks, Meeting meeting,
                                                     int64_t first, int64_t last, const core::MemoryState* from) {
  auto saved = std::make_shared<core::MemoryState>();
  expect_none(on_updates(training, ranks_of(ranks, meeting), [&](int rank, VariableUpdate& update) {
    if (from != nullptr) update.load(*from);
    run_steps(update, rank, first, last, exact_gradients);
    // The other ranks may have ended by then.
    if (rank == 0 && meeting == Meeting::kSharedMemory) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (rank == 0) update.save(*saved);
  }));
  return saved;
}

void expect_same_state(const core::MemoryState& state, const core::MemoryState& expected, const std::string& where) {
  ASSERT_EQ(state.names(), expected.names()) << where;
  for (const std::string& name : expected.names()) {
    EXPECT_TRUE(state.tensor(name).equal(expected.tensor(name))) << where << ": " << name;
  }
}

TEST(ShardedUpdate, StatesFitAnyNumberOfRanksAndUpdatesByEveryRank) {
  const Training plain{.optimizer = "torch_nadam"};
  Training sharded = plain;
  sharded.sharding.use = Use::kAlways;
  const auto undisturbed = continue_training(plain, 1, Meeting::kThreads, 0, 6, nullptr);
  const auto run = [&](bool is_sharded, int ranks, int64_t first, int64_t last, const core::MemoryState* from) {
    return is_sharded ? continue_training(sharded, ranks, Meeting::kSharedMemory, first, last, from)
                      : continue_training(plain, ranks, Meeting::kThreads, first, last, from);
  };
  for (const auto& [first_sharded, first_ranks] : {std::pair{true, 2}, {true, 3}, {false, 1}, {false, 2}}) {
    const auto half = run(first_sharded, first_ranks, 0, 3, nullptr);
    for (const auto& [then_sharded, then_ranks] : {std::pair{true, 2}, {true, 3}, {true, 4}, {false, 1}}) {
      expect_same_state(*run(then_sharded, then_ranks, 3, 6, half.get()), *undisturbed,
                        fmt::format("{} ranks{}, then {}{}", first_ranks, first_sharded ? " sharded" : "", then_ranks,
                                    then_sharded ? " sharded" : ""));
    }
  }
}

TEST(ShardedUpdate, ABroadcastKeepsTheSlotsOfAllParts) {
  const Training training{.sharding = {.use = Use::kAlways}};
  const auto expected = continue_training({}, 1, Meeting::kThreads, 0, 4, nullptr);
  const auto saved = std::make_shared<core::MemoryState>();
  expect_none(on_updates(training, ranks_of(3, Meeting::kSharedMemory), [&](int rank, VariableUpdate& update) {
    run_steps(update, rank, 0, 3, exact_gradients);
    if (rank != 0) update.parameters(0).values().add_(rank);
    update.broadcast();
    run_steps(update, rank, 3, 4, exact_gradients);
    if (rank == 0) update.save(*saved);
  }));
  expect_same_state(*saved, *expected, "after a broadcast");
}

// The gradients of `rank` are ones, but for one element of it.
void all_ones_but(nn::ParameterSet& set, bool bad, int64_t element, double value) {
  set.gradients().fill_(1);
  if (bad) set.gradients()[element] = value;
}

TEST(ShardedUpdate, AllRanksHearOfAGradientThatIsNotFiniteAndGetAllOfThem) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Training training{.sharding = {.use = Use::kAlways}};
  expect_none(on_updates(training, ranks_of(3, Meeting::kSharedMemory), [&](int rank, VariableUpdate& update) {
    nn::ParameterSet& set = update.parameters(0);
    const at::Tensor before = set.values().clone();
    optim::StepState state;
    // The first and the last part, of which others than rank 1 have one.
    for (const int64_t element : {int64_t{0}, set.segments().back().offset + 3}) {
      all_ones_but(set, rank == 1, element, kInfinity);
      update.reduce(0);
      EXPECT_EQ(update.gradients_finite(0), std::optional(false));
      EXPECT_EQ(set.gradients()[element].item<double>(), kInfinity);
      EXPECT_EQ(set.gradients().eq(1).sum().item<int64_t>(), set.total() - 1);
      state.write({.learning_rate = 0.1, .found_inf = true});
      update.update(0, state);
      EXPECT_TRUE(set.values().equal(before));
    }
    all_ones_but(set, false, 0, 0);
    update.reduce(0);
    EXPECT_EQ(update.gradients_finite(0), std::optional(true));
    state.write({.learning_rate = 0.1});
    update.update(0, state);
    EXPECT_FALSE(set.values().equal(before));
  }));
}

TEST(ShardedUpdate, KnowsAfterTheUpdateWhereNothingDependsOnIt) {
  const Training training{.sharding = {.use = Use::kAlways, .decides_before_update = false}};
  expect_none(on_updates(training, ranks_of(3, Meeting::kSharedMemory), [](int rank, VariableUpdate& update) {
    optim::StepState state;
    state.write({.learning_rate = 0.1});
    for (const bool bad : {false, true, false}) {
      all_ones_but(update.parameters(0), bad && rank == 2, 0, std::numeric_limits<double>::quiet_NaN());
      update.reduce(0);
      update.update(0, state);
      EXPECT_EQ(update.gradients_finite(0), std::optional(!bad));
    }
  }));
}

std::string refusal(const Training& training, Meeting meeting) {
  std::string text;
  for (const auto& error : on_updates(training, ranks_of(2, meeting), [](int, VariableUpdate&) {})) {
    if (!error) return "no error";
    EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
    text = error->what();
  }
  return text;
}

TEST(ShardedUpdate, IsRefusedByNameWhereItDoesNotWork) {
  const Sharding always{.use = Use::kAlways};
  EXPECT_THAT(refusal({.optimizer = "lars", .sharding = always}, Meeting::kThreads), HasSubstr("scaled by norms"));
  EXPECT_THAT(refusal({.options = {.norm_clip = optim::NormClip{}}, .sharding = always}, Meeting::kThreads),
              HasSubstr("clipped by norm"));
  EXPECT_THAT(refusal({.options = {.delayed = true}, .sharding = always}, Meeting::kThreads),
              HasSubstr("one update later"));
  EXPECT_THAT(refusal({.sharding = always}, Meeting::kMessages), HasSubstr("do not share memory"));
  EXPECT_THAT(refusal({.sharding = {.use = Use::kAlways, .obstacle = "a hook reads gradients"}}, Meeting::kThreads),
              HasSubstr("a hook reads gradients"));
  const auto parameter_server = [] {
    const auto update = variable_updates().get("parameter_server")(
        {.replicas = 2,
         .make_optimizers = {[](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); }},
         .sharding = {.use = Use::kAlways}});
    for (int r = 0; r < 2; ++r) declare(update->parameters(r));
    update->allocate();
  };
  EXPECT_THAT(core::message_of(parameter_server, ErrorCode::kUnsupported), HasSubstr("no copies"));
}

TEST(ShardedUpdate, LeavesTheUpdateToEveryRankWhereItDoesNotWork) {
  for (const std::string optimizer : {"lars", "lamb", "muon_sgd", "schedule_free_sgd"}) {
    Training training{.optimizer = optimizer, .large = true};
    const std::vector<at::Tensor> whole = train(training, 2, Meeting::kThreads, false);
    training.sharding.use = Use::kAuto;
    expect_equal(train(training, 2, Meeting::kSharedMemory, false), whole[0], optimizer);
  }
  Training messages{.large = true};
  const std::vector<at::Tensor> whole = train(messages, 2, Meeting::kThreads, false);
  messages.sharding.use = Use::kAuto;
  expect_equal(train(messages, 2, Meeting::kMessages, false), whole[0], "messages");
}

TEST(ShardedUpdate, IsAutomaticForModelsThatAreLargeEnough) {
  for (const bool large : {false, true}) {
    const Training training{.sharding = {.use = Use::kAuto}, .large = large};
    expect_none(on_updates(training, ranks_of(2, Meeting::kThreads),
                           [&](int, VariableUpdate& update) { EXPECT_EQ(update.sharded(), large); }));
  }
}

TEST(ShardedUpdate, OneRankThatCannotIsEnough) {
  Communicators communicators = ranks_of(2, Meeting::kSharedMemory);
  std::vector<core::Thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back(core::ThreadOptions{}, [&, rank] {
      const Training training{.sharding = {.use = Use::kAuto, .obstacle = rank == 0 ? "" : "a hook reads gradients"},
                              .large = true};
      EXPECT_FALSE(make(training, communicators[rank])->sharded());
    });
  }
  for (core::Thread& thread : threads) thread.join();
}

// Threads hear of it at once. Processes hear of it from their process group, which these have not: at the deadline.
TEST(ShardedUpdate, ARankThatFailsEndsTheOthers) {
  for (const bool decides_before : {true, false}) {
    for (const Meeting meeting : {Meeting::kThreads, Meeting::kSharedMemory}) {
      const bool threads = meeting == Meeting::kThreads;
      const Training training{.sharding = {.use = Use::kAlways, .decides_before_update = decides_before},
                              .deadline = std::chrono::milliseconds(threads ? 20'000 : 1'000)};
      std::atomic<int> waiting = 0;
      const auto errors = on_updates(training, ranks_of(3, meeting), [&](int rank, VariableUpdate& update) {
        run_steps(update, rank, 0, 1, exact_gradients);
        if (rank == 1) {
          update.abort(Error(ErrorCode::kInternal, "rank 1 has failed"));
          while (!threads && waiting < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return;
        }
        try {
          run_steps(update, rank, 1, 2, exact_gradients);
        } catch (...) {
          ++waiting;
          throw;
        }
        ADD_FAILURE() << "rank " << rank << " has updated without rank 1";
      });
      EXPECT_FALSE(errors[1]);
      for (const size_t rank : {0, 2}) {
        ASSERT_TRUE(errors[rank]);
        EXPECT_EQ(errors[rank]->code(), threads ? ErrorCode::kPeerFailed : ErrorCode::kTimeout);
        EXPECT_THAT(errors[rank]->what(), HasSubstr(threads ? "rank 1 has failed" : "no call from rank 1"));
      }
    }
  }
}

// Values of more than 32 MiB are written past the caches: to all of their elements, the last of which fill no vector.
TEST(ShardedUpdate, WritesValuesOfManyBytesToAllRanks) {
  std::vector<at::Tensor> values;
  for (const Use use : {Use::kNever, Use::kAlways}) {
    Training training{.sharding = {.use = use}};
    training.more = {8'600, 1'001};
    std::vector<at::Tensor> of_ranks(2);
    expect_none(on_updates(training, ranks_of(2, Meeting::kThreads), [&](int rank, VariableUpdate& update) {
      EXPECT_EQ(update.sharded(), use == Use::kAlways);
      run_steps(update, rank, 0, 1, [](nn::ParameterSet& set, int own, int64_t) {
        set.gradients().copy_(at::arange(set.total(), at::kFloat).mul(1e-7 * (own + 1)));
      });
      of_ranks[static_cast<size_t>(rank)] = update.parameters(0).values().clone();
    }));
    values.insert(values.end(), of_ranks.begin(), of_ranks.end());
  }
  ASSERT_GT(values[0].nbytes(), size_t{32} << 20);
  expect_equal(values, values[0], "a large model");
}

TEST(ShardedUpdate, SaysWhyItIsRefused) {
  const auto message = [](int replicas, const std::string& mode, const VariableUpdateOptions& other) {
    return core::message_of(
        [&] {
          VariableUpdateOptions options = other;
          options.replicas = replicas;
          options.sharding.use = Use::kAlways;
          const auto update = variable_updates().get(mode)(options);
          for (int r = 0; r < replicas; ++r) declare(update->parameters(r));
          update->allocate();
        },
        ErrorCode::kUnsupported);
  };
  const std::string problem = "the update of parameters cannot be divided among the ranks: --sharded_update=true: got ";
  const std::string remedy = "; leave it to --sharded_update=auto";
  const auto sgd = [](nn::ParameterSet& set) { return optim::optimizers().get("sgd")(set, {}); };
  EXPECT_EQ(message(2, "parameter_server", {.make_optimizers = {sgd}}),
            problem + "replicas have no copies of the parameters that each updates" + remedy);
  VariableUpdateOptions compressed{.make_optimizers = {sgd}};
  compressed.compression.method = CompressionMethod::kTopK;
  EXPECT_EQ(message(2, "replicated", compressed), problem + "gradients are compressed" + remedy);
}

}  // namespace
}  // namespace trainyard::parallel::sharded_update_test
