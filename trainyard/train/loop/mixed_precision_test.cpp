// Loss scales and variables of 16 bits through the trainer, on the CPU: what a step with an infinite gradient leaves
// alone, on every replica and with every variable update, and what a resumed run goes on with.
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/testing/server_cluster.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::mixed_precision_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr optim::LossScaleRule kAllRules[] = {optim::LossScaleRule::kTensorFlow, optim::LossScaleRule::kTorch,
                                              optim::LossScaleRule::kPaddle};

// The values of all replicas behind each step.
struct ValuesOfSteps : Callback {
  std::string name() const override { return "values_of_steps"; }
  void after_step(Trainer&, const StepView& view) override {
    auto& now = steps.emplace_back();
    for (const ReplicaView& replica : view.replicas) now.push_back(replica.parameters->values().clone());
  }
  std::vector<std::vector<at::Tensor>> steps;
};

struct ScaledRun {
  std::string variable_update = "replicated";
  int replicas = 1;
  at::ScalarType dtype = at::kFloat;
  optim::LossScalerOptions scale{.scale = 8, .automatic = true};
};

// GoogleTest looks for this name.
void PrintTo(const ScaledRun& run, std::ostream* out) {  // NOLINT(readability-identifier-naming)
  *out << run.variable_update << " of " << run.replicas << " in " << at::toString(run.dtype);
}

TowerTrainerOptions options_of(const ScaledRun& run) {
  TowerTrainerOptions options = tiny_options({.batch_norm = false}, run.replicas);
  options.exchange.variable_update = run.variable_update;
  options.devices.dtype = run.dtype;
  options.devices.executor = run.dtype == at::kDouble ? "reference" : "cpu";
  options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
  options.devices.loss_scale = run.scale;
  return options;
}

// Makes the gradient of fc.bias infinite on the last replica in the steps that `bad` names, from 0.
void spoil(TowerTrainerOptions& options, std::function<bool(int64_t)> bad, int64_t first_step = 0) {
  options.hooks.reduce_pre = [bad = std::move(bad), last = options.devices.replicas - 1,
                              step = std::make_shared<int64_t>(first_step)](int replica, nn::ParameterSet& set) {
    if (replica != last) return;
    if (bad((*step)++)) set.gradient(*set.find("fc.bias"))[2] = kInfinity;
  };
}

class Overflow : public testing::TestWithParam<ScaledRun> {};

TEST_P(Overflow, SkipsTheUpdateOfEveryReplica) {
  const ScaledRun& run = GetParam();
  const bool alone = run.variable_update == "independent";
  TowerTrainerOptions options = options_of(run);
  spoil(options, [](int64_t step) { return step == 2; });
  TowerTrainer trainer(options, tiny_source(240, 8, run.replicas));
  const auto values = std::make_shared<ValuesOfSteps>();
  trainer.add(values);
  trainer.train({.steps_per_epoch = 2});
  core::MemoryState before, after;
  trainer.save(before);
  trainer.train({.steps_per_epoch = 3, .starting_step = 2});
  trainer.save(after);
  trainer.train({.steps_per_epoch = 4, .starting_step = 3});
  ASSERT_EQ(values->steps.size(), 4U);
  for (size_t r = 0; r < static_cast<size_t>(run.replicas); ++r) {
    const bool skips = !alone || static_cast<int>(r) == run.replicas - 1;
    EXPECT_EQ(values->steps[2][r].equal(values->steps[1][r]), skips) << r;
    EXPECT_FALSE(values->steps[1][r].equal(values->steps[0][r])) << r;
    EXPECT_FALSE(values->steps[3][r].equal(values->steps[2][r])) << "the training goes on";
  }
  // Slots, too.
  const std::string of_bad = alone && run.replicas > 1 ? "replica/" + std::to_string(run.replicas - 1) + "/" : "";
  int saved = 0;
  for (const char* part : {"model/", "optimizer/"}) {
    for (const std::string& name : before.names(of_bad + part)) {
      EXPECT_TRUE(std::as_const(before).tensor(name).equal(std::as_const(after).tensor(name))) << name;
      ++saved;
    }
  }
  EXPECT_EQ(saved, 6) << "three parameters and their momenta";
  if (!alone || run.replicas == 1) {
    EXPECT_EQ(trainer.loss_scale()->scale, run.scale.rule == optim::LossScaleRule::kPaddle ? 8 : 4);
  }
}

std::vector<ScaledRun> all_runs() {
  std::vector<ScaledRun> runs;
  for (const char* mode : {"parameter_server", "replicated", "independent"}) {
    for (const int replicas : {1, 2, 3}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        runs.push_back({.variable_update = mode, .replicas = replicas, .dtype = dtype});
      }
    }
  }
  runs.push_back({.variable_update = "asynchronous"});
  runs.push_back({.variable_update = "replicated", .replicas = 2, .dtype = at::kDouble});
  for (const optim::LossScaleRule rule : kAllRules) {
    runs.push_back({.replicas = 2, .scale = {.scale = 8, .automatic = true, .rule = rule}});
  }
  return runs;
}

INSTANTIATE_TEST_SUITE_P(All, Overflow, testing::ValuesIn(all_runs()), [](const auto& tested) {
  return tested.param.variable_update + "_" + std::to_string(tested.param.replicas) + "_" +
         std::to_string(tested.index);
});

// Processes as threads: the one whose gradient is infinite is rank 1.
TEST(OverflowOfProcesses, SkipsTheUpdateOfEveryRank) {
  constexpr int kRanks = 2;
  std::vector<std::unique_ptr<core::Communicator>> communicators = parallel::make_thread_communicators(kRanks);
  std::vector<std::shared_ptr<ValuesOfSteps>> values(kRanks);
  std::vector<core::Thread> ranks;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(core::ThreadOptions{}, [&, rank] {
      TowerTrainerOptions options = options_of({.variable_update = "horovod"});
      options.devices.make_communicators = [&] {
        std::vector<std::unique_ptr<core::Communicator>> one;
        one.push_back(std::move(communicators[rank]));
        return one;
      };
      if (rank == 1) spoil(options, [](int64_t step) { return step == 1; });
      TowerTrainer trainer(options, tiny_source(240, 8));
      values[rank] = std::make_shared<ValuesOfSteps>();
      trainer.add(values[rank]);
      trainer.train({.steps_per_epoch = 3});
      EXPECT_EQ(trainer.loss_scale()->scale, 4);
    });
  }
  for (core::Thread& rank : ranks) rank.join();
  for (const auto& own : values) {
    ASSERT_EQ(own->steps.size(), 3U);
    EXPECT_TRUE(own->steps[1][0].equal(own->steps[0][0]));
    EXPECT_FALSE(own->steps[2][0].equal(own->steps[1][0]));
  }
}

// Workers of parameter servers: the one whose gradient is infinite is worker 1. The other one hears of it behind the
// update, and continues with the same scale.
TEST(OverflowOfWorkers, SkipsTheUpdateOfEveryWorker) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  for (const optim::LossScaleRule rule : kAllRules) {
    const ScaledRun run{.variable_update = "parameter_server",
                        .scale = {.scale = 8, .automatic = true, .rule = rule, .lower_after = 1}};
    const TowerTrainerOptions plain = options_of(run);
    const parallel::ParameterServer::MakeOptimizers make{plain.make_optimizer};
    parallel::ServerCluster cluster({.workers = 2, .servers = 2}, make);
    std::vector<std::shared_ptr<ValuesOfSteps>> values(2);
    std::vector<int64_t> averaged(2);
    cluster.on_workers([&](int worker, const std::shared_ptr<parallel::ServerGroup>& group) {
      const auto own = static_cast<size_t>(worker);
      TowerTrainerOptions options = options_of(run);
      options.devices.servers = group;
      options.average = optim::WeightAverageOptions{};
      if (worker == 1) spoil(options, [](int64_t step) { return step == 1; });
      TowerTrainer trainer(options, tiny_source(240, 8));
      values[own] = std::make_shared<ValuesOfSteps>();
      trainer.add(values[own]);
      trainer.train({.steps_per_epoch = 4});
      EXPECT_EQ(trainer.loss_scale()->scale, rule == optim::LossScaleRule::kPaddle ? 6.4F : 4) << "worker " << worker;
      averaged[own] = trainer.average()->updates();
    });
    cluster.wait();
    for (size_t worker = 0; worker < 2; ++worker) {
      ASSERT_EQ(values[worker]->steps.size(), 4U);
      EXPECT_TRUE(values[worker]->steps[1][0].equal(values[worker]->steps[0][0]));
      EXPECT_FALSE(values[worker]->steps[2][0].equal(values[worker]->steps[1][0]));
      EXPECT_EQ(averaged[worker], 3) << "a skipped step does not count";
    }
  }
}

// Without a loss scale the update tells the other worker, too: what it has averaged is the same.
TEST(OverflowOfWorkers, AStepThatOneWorkerSkipsIsInNoAverage) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  const parallel::ParameterServer::MakeOptimizers make{
      options_of({.variable_update = "parameter_server"}).make_optimizer};
  parallel::ServerCluster cluster({.workers = 2, .servers = 2}, make);
  std::vector<int64_t> averaged(2), skipped(2);
  std::vector<at::Tensor> averages(2);
  cluster.on_workers([&](int worker, const std::shared_ptr<parallel::ServerGroup>& group) {
    const auto own = static_cast<size_t>(worker);
    TowerTrainerOptions options = options_of({.variable_update = "parameter_server"});
    options.devices.servers = group;
    options.devices.loss_scale.reset();
    options.on_nan = OnNan::kSkip;
    options.average = optim::WeightAverageOptions{};
    if (worker == 1) spoil(options, [](int64_t step) { return step == 1; });
    TowerTrainer trainer(options, tiny_source(240, 8));
    trainer.train({.steps_per_epoch = 4});
    averaged[own] = trainer.average()->updates();
    averages[own] = trainer.average()->weights().values().clone();
    skipped[own] = trainer.skipped_steps();
  });
  cluster.wait();
  EXPECT_EQ(averaged, (std::vector<int64_t>{3, 3}));
  EXPECT_TRUE(averages[0].equal(averages[1]));
  EXPECT_EQ(skipped[1], 1) << "that of its own gradient";
}

TEST(OverflowOfWorkers, StagedValuesAreRefused) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  TowerTrainerOptions options = options_of({.variable_update = "staged_parameter_server"});
  options.devices.servers =
      std::make_shared<parallel::ServerGroup>(parallel::ServerGroupOptions{.addresses = {"127.0.0.1:1"}});
  EXPECT_THAT(core::message_of([&] { options.validate(); }, core::ErrorCode::kUnsupported),
              core::Says("expected a training without an automatic loss scale"));
  options.devices.loss_scale->automatic = false;
  EXPECT_EQ(core::message_of([&] { options.validate(); }), "no error");
}

// Servers complete gradients: those that a worker has completed would have the scale and the decay twice.
TEST(OverflowOfWorkers, WorkersPushGradientsThatAreNotComplete) {
  if (!parallel::has_parameter_servers()) GTEST_SKIP() << core::skip::kNeedsGrpc;
  const auto refusal = [](const std::function<void(TowerTrainerOptions&)>& change, core::ErrorCode code) {
    TowerTrainerOptions options = options_of({.variable_update = "parameter_server"});
    options.devices.servers =
        std::make_shared<parallel::ServerGroup>(parallel::ServerGroupOptions{.addresses = {"127.0.0.1:1"}});
    change(options);
    return core::message_of([&] { options.validate(); }, code);
  };
  EXPECT_EQ(refusal([](auto&) {}, core::ErrorCode::kUnsupported), "no error");
  EXPECT_THAT(refusal([](auto& options) { options.sharpness_aware = optim::SharpnessAwareOptions{}; },
                      core::ErrorCode::kUnsupported),
              core::Says("expected a training without sharpness-aware minimization"));
  EXPECT_THAT(refusal([](auto& options) { options.hooks.update_pre = [](int, nn::ParameterSet&) {}; },
                      core::ErrorCode::kUnsupported),
              core::Says("expected a training without a hook on the gradients that are applied (update_pre)"));
  EXPECT_THAT(
      refusal([](auto& options) { options.devices.variables_as = at::kBFloat16; }, core::ErrorCode::kInvalidArgument),
      core::Says("the type of variables cannot be used: expected that of the servers", "got BFloat16"));
}

TEST(LossScales, ManySkipsUnderAScaleOfOneEndTheRunAndNameTheParameter) {
  for (const optim::LossScaleRule rule : kAllRules) {
    for (const char* mode : {"parameter_server", "independent"}) {
      TowerTrainerOptions options =
          options_of({.variable_update = mode,
                      .replicas = 2,
                      .scale = {.scale = 2, .automatic = true, .rule = rule, .most_skips_at_floor = 5}});
      spoil(options, [](int64_t) { return true; });
      TowerTrainer trainer(options, tiny_source(240, 8, 2));
      const at::Tensor start = trainer.parameters().values().clone();
      const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 50}); });
      EXPECT_TRUE(core::says(error, "5 steps in a row were skipped under a loss scale of 1 or less")) << error.what();
      EXPECT_TRUE(core::says(error, "the gradient of fc.bias (inf) is not finite")) << error.what();
      EXPECT_TRUE(core::says(error, "--loss_scale_most_skips")) << error.what();
      EXPECT_EQ(core::says(error, "on replica 1"), mode == std::string("independent")) << error.what();
      // TensorFlow's and PyTorch's reach 1 after one halving, Paddle's after 4 x 2 bad steps: 2, 1.6, 1.28, 1.024, 1.
      const int64_t above = rule == optim::LossScaleRule::kPaddle ? 8 : 1;
      EXPECT_EQ(trainer.global_step(), above + 4) << error.what();
      if (mode == std::string("parameter_server")) {
        EXPECT_TRUE(trainer.parameters().values().equal(start));
      }
    }
  }
}

// On an accelerator, which is not waited for, whoever looks at every hundredth step sees it.
TEST(LossScales, ManySkipsOnAnAcceleratorEndTheRunWhereItIsLookedAt) {
  TowerTrainerOptions options = options_of({.scale = {.scale = 1, .automatic = true, .most_skips_at_floor = 20}});
  options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
  options.hooks.reduce_pre = [](int, nn::ParameterSet& set) { set.gradient(*set.find("fc.weight"))[3][1] = kInfinity; };
  TowerTrainer trainer(options, tiny_source(240, 8));
  const core::Error error = core::thrown_by([&] { trainer.train({.steps_per_epoch = 300}); });
  EXPECT_TRUE(core::says(error, "101 steps in a row were skipped under a loss scale of 1 or less")) << error.what();
  EXPECT_TRUE(core::says(error, "the gradient of fc.weight (inf) is not finite")) << error.what();
  EXPECT_TRUE(core::says(error, "global step 101")) << error.what();
}

TEST(LossScales, FewSkipsDoNotEndTheRun) {
  const auto run = [](int64_t most, std::function<bool(int64_t)> bad) {
    TowerTrainerOptions options = options_of({.scale = {.scale = 1, .automatic = true, .most_skips_at_floor = most}});
    spoil(options, std::move(bad));
    TowerTrainer trainer(options, tiny_source(240, 8));
    trainer.train({.steps_per_epoch = 20});
    return trainer.global_step();
  };
  EXPECT_EQ(run(4, [](int64_t step) { return step % 4 != 3; }), 20) << "three in a row";
  EXPECT_EQ(run(0, [](int64_t) { return true; }), 20) << "never";
}

TEST(LossScales, GoOnAfterAResumeInTheMiddleOfTheirCounts) {
  const auto bad = [](int64_t step) { return step == 2 || step == 3 || step == 8 || step == 9; };
  for (const optim::LossScaleRule rule : kAllRules) {
    for (const char* mode : {"replicated", "independent"}) {
      const ScaledRun run{.variable_update = mode,
                          .replicas = 2,
                          .scale = {.scale = 64, .automatic = true, .rule = rule, .raise_after = 3}};
      const auto make = [&](int64_t first_step) {
        TowerTrainerOptions options = options_of(run);
        spoil(options, bad, first_step);
        return std::make_unique<TowerTrainer>(options, tiny_source(240, 8, 2));
      };
      const auto straight = make(0);
      straight->train({.steps_per_epoch = 14});
      core::MemoryState expected;
      straight->save(expected);
      for (const int64_t stop : {2, 3, 5, 6, 9}) {
        const auto first = make(0), second = make(stop);
        first->train({.steps_per_epoch = stop});
        core::MemoryState saved, actual;
        first->save(saved);
        second->load(saved);
        second->train({.steps_per_epoch = 14, .starting_step = stop});
        second->save(actual);
        ASSERT_EQ(expected.names(), actual.names());
        int compared = 0;
        for (const char* part : {"model/", "optimizer/", "loss_scaler/", "replica/"}) {
          for (const std::string& name : expected.names(part)) {
            EXPECT_TRUE(std::as_const(expected).tensor(name).equal(std::as_const(actual).tensor(name)))
                << name << " " << stop;
            ++compared;
          }
        }
        EXPECT_EQ(compared, mode == std::string("replicated") ? 10 : 20);
      }
    }
  }
}

TEST(LossScales, AFixedOneThatIsGivenIsThatOfAResumedRun) {
  const auto make = [](const optim::LossScalerOptions& scale) {
    return std::make_unique<TowerTrainer>(options_of({.replicas = 2, .scale = scale}), tiny_source(240, 8, 2));
  };
  core::MemoryState saved;
  make({.scale = 16})->save(saved);
  std::string log;
  const auto resumed = [&](const optim::LossScalerOptions& scale) {
    const auto trainer = make(scale);
    testing::internal::CaptureStderr();
    trainer->load(saved);
    log = testing::internal::GetCapturedStderr();
    const double loaded = trainer->loss_scale()->scale;
    trainer->train({.steps_per_epoch = 2});
    return std::pair(loaded, trainer->loss_scale()->scale);
  };
  EXPECT_EQ(resumed({.scale = 64}), std::pair(64.0, 64.0));
  EXPECT_NE(log.find("the loss scale is 64 instead of 16, that of the checkpoint\n"), std::string::npos) << log;
  for (const optim::LossScalerOptions& same : {optim::LossScalerOptions{}, optim::LossScalerOptions{.scale = 16}}) {
    EXPECT_EQ(resumed(same), std::pair(16.0, 16.0)) << "what is not given is the checkpoint's";
    EXPECT_EQ(log.find("loss scale"), std::string::npos) << log;
  }
  EXPECT_EQ(resumed({.scale = 64, .automatic = true}).first, 16) << "one that moves continues where it was";
}

// Those of independent replicas are their own: only the one that overflows lowers its scale.
TEST(LossScales, OfIndependentReplicasMoveApart) {
  TowerTrainerOptions options = options_of({.variable_update = "independent", .replicas = 2});
  spoil(options, [](int64_t step) { return step == 1; });
  TowerTrainer trainer(options, tiny_source(240, 8, 2));
  trainer.train({.steps_per_epoch = 3});
  core::MemoryState state;
  trainer.save(state);
  EXPECT_EQ(std::as_const(state).tensor("loss_scaler/scale").item<double>(), 8);
  EXPECT_EQ(std::as_const(state).tensor("loss_scaler/replica/1/scale").item<double>(), 4);
}

TEST(LossScales, ChangeNothingButRoundingInBfloat16) {
  const auto trained = [](std::optional<optim::LossScalerOptions> scale) {
    TowerTrainerOptions options = options_of({.dtype = at::kBFloat16});
    options.devices.loss_scale = scale;
    TowerTrainer trainer(options, tiny_source(240, 8));
    trainer.train({.steps_per_epoch = 5});
    return trainer.parameters().values().clone();
  };
  const at::Tensor plain = trained(std::nullopt);
  EXPECT_LE(trained(optim::LossScalerOptions{.scale = 1024}).sub(plain).abs().max().item<double>(), 1e-3);
}

// ------ variables of 16 bits

TowerTrainerOptions options_with_variables(at::ScalarType type, double rate, const std::string& mode = "replicated",
                                           int replicas = 1) {
  TowerTrainerOptions options = tiny_options({}, replicas);
  options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
  options.exchange.variable_update = mode;
  options.learning_rate = optim::constant(rate);
  options.devices.variables_as = type;
  return options;
}

bool holds(const at::Tensor& numbers, at::ScalarType type) {
  return numbers.to(type).to(numbers.scalar_type()).equal(numbers);
}

TEST(VariablesOf16Bits, AreWhatSuchFloatsHoldAfterEachStep) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    for (const char* mode : {"parameter_server", "replicated", "independent"}) {
      TowerTrainer trainer(options_with_variables(type, 0.05, mode, 2), tiny_source(240, 8, 2));
      EXPECT_TRUE(holds(trainer.parameters().values(), type)) << "from the beginning";
      const auto values = std::make_shared<ValuesOfSteps>();
      trainer.add(values);
      trainer.train({.steps_per_epoch = 4});
      for (const auto& step : values->steps) {
        for (const at::Tensor& replica : step) EXPECT_TRUE(holds(replica, type)) << mode;
      }
      core::MemoryState saved;
      trainer.save(saved);
      for (const std::string& name : saved.names("optimizer/")) {
        EXPECT_TRUE(holds(std::as_const(saved).tensor(name), type)) << name;
        EXPECT_EQ(std::as_const(saved).tensor(name).scalar_type(), at::kFloat);
      }
      EXPECT_FALSE(values->steps[3][0].equal(values->steps[0][0])) << "it trains";
    }
  }
}

// One step from the same values with plain variables, rounded, is one step with 16 bits.
TEST(VariablesOf16Bits, AreTheRoundedUpdate) {
  TowerTrainerOptions options = options_with_variables(at::kBFloat16, 0.05);
  TowerTrainer rounded(options, tiny_source(240, 8));
  core::MemoryState start;
  rounded.save(start);
  options.devices.variables_as.reset();
  TowerTrainer plain(options, tiny_source(240, 8));
  plain.load(start);
  rounded.train({.steps_per_epoch = 1});
  plain.train({.steps_per_epoch = 1});
  EXPECT_FALSE(plain.parameters().values().equal(rounded.parameters().values()));
  EXPECT_TRUE(plain.parameters().values().to(at::kBFloat16).to(at::kFloat).equal(rounded.parameters().values()));
}

// What people meet who store variables so: updates below half a unit in the last place are lost.
TEST(VariablesOf16Bits, LoseSmallUpdates) {
  TowerTrainer rounded(options_with_variables(at::kBFloat16, 1e-7), tiny_source(240, 8));
  const at::Tensor start = rounded.parameters().value(*rounded.parameters().find("fc.weight")).clone();
  rounded.train({.steps_per_epoch = 3});
  EXPECT_TRUE(rounded.parameters().value(*rounded.parameters().find("fc.weight")).equal(start));
}

TEST(VariablesOf16Bits, AreTheSameOnAnAccelerator) {
  const auto trained = [](bool accelerator, bool capture) {
    TowerTrainerOptions options = options_with_variables(at::kHalf, 0.05);
    if (accelerator) options.devices.accelerators = {std::make_shared<FakeAccelerator>()};
    options.devices.capture_steps = capture;
    TowerTrainer trainer(options, tiny_source(240, 8));
    trainer.train({.steps_per_epoch = 4});
    return trainer.parameters().values().clone();
  };
  EXPECT_TRUE(trained(true, false).equal(trained(false, false)));
  EXPECT_TRUE(trained(true, true).equal(trained(false, false)));
}

TEST(VariablesOf16Bits, GoOnAfterAResume) {
  const TowerTrainerOptions options = options_with_variables(at::kHalf, 0.05, "parameter_server", 2);
  TowerTrainer straight(options, tiny_source(240, 8, 2)), first(options, tiny_source(240, 8, 2)),
      second(options, tiny_source(240, 8, 2));
  straight.train({.steps_per_epoch = 6});
  first.train({.steps_per_epoch = 3});
  core::MemoryState saved;
  first.save(saved);
  second.load(saved);
  second.train({.steps_per_epoch = 6, .starting_step = 3});
  EXPECT_TRUE(second.parameters().values().equal(straight.parameters().values()));
}

TEST(VariablesOf16Bits, AreRefusedWhereTheyCannotBe) {
  const auto problem = [](const TowerTrainerOptions& options) {
    return core::message_of([&] { TowerTrainer(options, tiny_source(240, 8, options.devices.replicas)); });
  };
  EXPECT_NE(problem(options_with_variables(at::kFloat, 0.1)).find("the type of variables"), std::string::npos);
  EXPECT_NE(problem(options_with_variables(at::kHalf, 0.1, "asynchronous")).find("variables of 16 bits"),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard::train::mixed_precision_test
