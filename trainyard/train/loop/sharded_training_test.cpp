// Trainings whose replicas each update a part of the parameters, against those whose replicas update all: the bits of
// every step, what is skipped and said when numbers are not finite, and states.
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::sharded_training_test {
namespace {

using ::testing::HasSubstr;
using Use = parallel::Sharding::Use;

constexpr int kReplicas = 3;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Returns rank 0's state after some steps, or the error, with one gradient of the third step that is not finite if
// `spoiled`.
struct Result {
  core::MemoryState state;
  int64_t skipped = 0;
  std::string error;
};

std::unique_ptr<Result> run(TowerTrainerOptions options, Use use, bool spoiled) {
  options.exchange.variable_update = "replicated";
  options.exchange.sharded_update = use;
  options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
  if (spoiled) {
    options.hooks.reduce_pre = [step = std::make_shared<int>(0)](int replica, nn::ParameterSet& set) {
      if (replica == 1 && (*step)++ == 2) set.gradient(*set.find("fc.bias"))[2] = kInfinity;
    };
  }
  auto result = std::make_unique<Result>();
  TowerTrainer trainer(options, tiny_source(240, 8, kReplicas));
  result->error = core::message_of([&] { trainer.train({.steps_per_epoch = 5}); }, core::ErrorCode::kCorruptData);
  result->skipped = trainer.skipped_steps();
  trainer.save(result->state);
  return result;
}

void expect_same(const TowerTrainerOptions& options, bool spoiled, const std::string& what) {
  const auto whole = run(options, Use::kNever, spoiled), sharded = run(options, Use::kAlways, spoiled);
  EXPECT_EQ(sharded->error, whole->error) << what;
  EXPECT_EQ(sharded->skipped, whole->skipped) << what;
  ASSERT_EQ(sharded->state.names(), whole->state.names()) << what;
  for (const char* prefix : {"model/", "optimizer/", "average/", "loss_scaler/"}) {
    for (const std::string& name : whole->state.names(prefix)) {
      if (core::error_of([&] { static_cast<void>(whole->state.tensor(name)); })) continue;  // a text or a number
      const at::Tensor expected = whole->state.tensor(name), actual = sharded->state.tensor(name);
      EXPECT_TRUE(actual.equal(expected) || (actual.isnan().any().item<bool>() && spoiled)) << what << ": " << name;
    }
  }
}

TEST(ShardedTraining, HasTheBitsOfUpdatesOfAllParametersByAll) {
  for (const OnNan on_nan : {OnNan::kStop, OnNan::kSkip, OnNan::kIgnore}) {
    TowerTrainerOptions options = tiny_options({}, kReplicas);
    options.on_nan = on_nan;
    expect_same(options, false, "plain");
    options.micro_steps = 2;
    options.average = optim::WeightAverageOptions{};
    expect_same(options, false, "micro-steps and an average");
    options.devices.dtype = at::kBFloat16;
    options.devices.variables_as = at::kBFloat16;
    options.devices.loss_scale = optim::LossScalerOptions{.scale = 8};
    expect_same(options, false, "variables of 16 bits and a fixed loss scale");
  }
}

TEST(ShardedTraining, TreatsAStepThatIsNotFiniteAlike) {
  for (const OnNan on_nan : {OnNan::kStop, OnNan::kSkip, OnNan::kIgnore}) {
    TowerTrainerOptions options = tiny_options({}, kReplicas);
    options.on_nan = on_nan;
    expect_same(options, true, "no loss scale");
    options.devices.loss_scale = optim::LossScalerOptions{.scale = 8, .automatic = true};
    expect_same(options, true, "an automatic loss scale");
  }
  TowerTrainerOptions options = tiny_options({}, kReplicas);
  EXPECT_THAT(run(options, Use::kAlways, true)->error, HasSubstr("the gradient of fc.bias (inf) is not finite"));
  options.on_nan = OnNan::kSkip;
  EXPECT_EQ(run(options, Use::kAlways, true)->skipped, 1);
}

TEST(ShardedTraining, CodeThatReadsGradientsExcludesIt) {
  const auto refusal = [](TowerTrainerOptions options) {
    options.exchange.variable_update = "replicated";
    options.exchange.sharded_update = Use::kAlways;
    return core::message_of([&] { TowerTrainer(options, tiny_source(240, 8, kReplicas)); },
                            core::ErrorCode::kUnsupported);
  };
  TowerTrainerOptions hooked = tiny_options({}, kReplicas), sharp = hooked;
  hooked.hooks.update_pre = [](int, nn::ParameterSet&) {};
  EXPECT_THAT(refusal(hooked), HasSubstr("a hook reads gradients"));
  sharp.sharpness_aware = optim::SharpnessAwareOptions{};
  EXPECT_THAT(refusal(sharp), HasSubstr("sharpness-aware"));
  for (const TowerTrainerOptions& options : {hooked, sharp}) {
    const auto whole = run(options, Use::kNever, false), automatic = run(options, Use::kAuto, false);
    for (const std::string& name : whole->state.names("model/")) {
      EXPECT_TRUE(automatic->state.tensor(name).equal(whole->state.tensor(name))) << name;
    }
  }
}

TEST(ShardedTraining, ResumesAsOneThatIsNot) {
  const auto part = [](Use use, int64_t steps, const core::MemoryState* from) {
    TowerTrainerOptions options = tiny_options({}, kReplicas);
    options.exchange.variable_update = "replicated";
    options.exchange.sharded_update = use;
    options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
    auto state = std::make_unique<core::MemoryState>();
    TowerTrainer trainer(options, tiny_source(240, 8, kReplicas));
    if (from != nullptr) trainer.load(*from);
    trainer.train({.steps_per_epoch = steps, .starting_step = trainer.step_in_epoch()});
    trainer.save(*state);
    return state;
  };
  const auto straight = part(Use::kNever, 6, nullptr);
  for (const auto& [first, second] : {std::pair{Use::kAlways, Use::kNever}, {Use::kNever, Use::kAlways}}) {
    const auto half = part(first, 3, nullptr);
    const auto rest = part(second, 6, half.get());
    for (const char* prefix : {"model/", "optimizer/"}) {
      for (const std::string& name : straight->names(prefix)) {
        EXPECT_TRUE(rest->tensor(name).equal(straight->tensor(name))) << name;
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::train::sharded_training_test
