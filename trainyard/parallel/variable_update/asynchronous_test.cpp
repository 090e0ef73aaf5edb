#include "trainyard/parallel/variable_update/asynchronous.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/testing/served_parameters.h"

namespace trainyard::parallel::asynchronous_test {
namespace {

using ::testing::HasSubstr;

constexpr double kServerRate = 0.01;

VariableUpdateOptions served(int replicas, const std::string& optimizer, double weight_decay = 0) {
  return {.replicas = replicas,
          .parameters = {.dtype = at::kDouble},
          .make_optimizers = {[=](nn::ParameterSet& set) {
            return optim::optimizers().get(optimizer)(set, {.weight_decay = weight_decay});
          }},
          .seed = 3};
}

std::unique_ptr<AsynchronousUpdate> make_served(const VariableUpdateOptions& options) {
  std::unique_ptr<VariableUpdate> made = variable_updates().get("asynchronous")(options);
  std::unique_ptr<AsynchronousUpdate> update(dynamic_cast<AsynchronousUpdate*>(made.release()));
  declare_small_layer(*update, options.replicas, {37, 41});
  return update;
}

optim::StepState served_step() {
  optim::StepState state;
  state.write({.learning_rate = kServerRate});
  return state;
}

// Returns how many gradients the server has applied, as it saves it.
int64_t applied_by(const AsynchronousUpdate& update) {
  core::MemoryState saved;
  update.save(saved);
  return saved.integer("asynchronous/updates");
}

double largest(const at::Tensor& difference) {
  return difference.abs().max().item<double>();
}

// w[n] = w[0] - rate * (sum of all gradients), in whatever order they come.
TEST(AsynchronousUpdate, AppliesEveryGradientOfEveryReplica) {
  for (const int replicas : {1, 2, 4}) {
    constexpr int kSteps = 60;
    const auto update = make_served(served(replicas, "sgd"));
    const at::Tensor start = update->parameters(0).values().clone();
    const optim::StepState state = served_step();
    std::vector<core::Thread> threads;
    for (int r = 0; r < replicas; ++r) {
      threads.emplace_back(core::ThreadOptions{}, [&, r] {
        const at::NoGradGuard without_gradients;
        update->parameters(r).gradients().fill_(1.0 + r);
        for (int step = 0; step < kSteps; ++step) {
          update->reduce(r);
          update->update(r, state, 0);
        }
      });
    }
    for (core::Thread& thread : threads) thread.join();
    EXPECT_EQ(applied_by(*update), replicas * kSteps);
    const double sum = kSteps * (replicas * (replicas + 1) / 2.0);
    for (const nn::Segment& segment : update->saved_parameters().segments()) {
      const at::Tensor moved = update->saved_parameters().value(segment.id) -
                               start.narrow(0, segment.offset, segment.count).view(segment.spec.shape);
      EXPECT_LT(largest(moved + kServerRate * sum), 1e-11) << replicas;
    }
    // The one that came last has what the server has; nobody is further.
    int equal = 0;
    for (int r = 0; r < replicas; ++r) {
      if (update->parameters(r).values().equal(update->saved_parameters().values())) ++equal;
    }
    EXPECT_GE(equal, 1);
  }
}

TEST(AsynchronousUpdate, AReplicaTakesTheServersValuesWithoutWaiting) {
  const auto update = make_served(served(2, "tf_momentum", 0.125));
  nn::ParameterSet same = update->parameters(0).clone();
  const auto alone = optim::optimizers().get("tf_momentum")(same, {.weight_decay = 0.125});
  const optim::StepState state = served_step();
  const at::NoGradGuard without_gradients;
  const uint64_t version = update->parameters(0).version();
  // One optimizer sees the gradients in the order in which they come; each with its decay, once.
  for (const int r : {0, 0, 1, 0, 1, 1}) {
    same.gradients().copy_(update->parameters(r).values().mul(0.5).add(r));
    update->parameters(r).gradients().copy_(same.gradients());
    update->update(r, state, 0);
    alone->apply(state);
    EXPECT_TRUE(update->parameters(r).values().equal(same.values()));
    EXPECT_TRUE(update->saved_parameters().values().equal(same.values()));
  }
  EXPECT_GT(update->parameters(0).version(), version);
  EXPECT_FALSE(update->parameters(0).values().equal(same.values())) << "replica 0 has not come since";
  EXPECT_EQ(applied_by(*update), 6);
  EXPECT_EQ(update->optimizer(1, 0), nullptr);
  EXPECT_EQ(update->optimizer_bytes(), static_cast<int64_t>(same.values().nbytes()));
  EXPECT_GE(update->communication_seconds(1), 0);
}

TEST(AsynchronousUpdate, CountsTheTimeInWhichOthersUseTheServer) {
  const auto update = make_served(served(2, "sgd"));
  std::atomic<bool> holds = false, comes = false;
  core::Thread other(core::ThreadOptions{.name = "other"}, [&] {
    update->change_values([&](nn::ParameterSet&) {
      holds = true;
      while (!comes) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    });
  });
  while (!holds) std::this_thread::yield();
  const double waited_before = update->waiting_seconds(1), before = update->communication_seconds(1);
  update->parameters(1).gradients().fill_(1);
  const optim::StepState state = served_step();
  comes = true;
  update->update(1, state, 0);
  other.join();
  EXPECT_GE(update->waiting_seconds(1) - waited_before, 0.01);
  EXPECT_GE(update->communication_seconds(1) - before, 0.01);
}

TEST(AsynchronousUpdate, SavesTheServersStateAndGivesItToAll) {
  const auto update = make_served(served(2, "tf_momentum")), resumed = make_served(served(3, "tf_momentum"));
  const optim::StepState state = served_step();
  for (const int r : {0, 1, 1}) {
    update->parameters(r).gradients().fill_(1.0 + r);
    update->update(r, state, 0);
  }
  update->parameters(0).buffer(0).fill_(4);
  update->parameters(1).buffer(0).fill_(5);
  core::MemoryState saved;
  update->save(saved);
  EXPECT_EQ(saved.tensor("model/bn.running_mean")[0].item<double>(), 4);
  resumed->load(saved);
  EXPECT_EQ(applied_by(*resumed), 3);
  for (int r = 0; r < 3; ++r) {
    EXPECT_TRUE(resumed->parameters(r).values().equal(update->saved_parameters().values())) << r;
    EXPECT_EQ(resumed->parameters(r).buffer(0)[0].item<double>(), 4) << r;
  }
  for (AsynchronousUpdate* each : {update.get(), resumed.get()}) {
    each->parameters(1).gradients().fill_(3);
    each->update(1, state, 0);
  }
  EXPECT_TRUE(resumed->saved_parameters().values().equal(update->saved_parameters().values()));

  core::MemoryState other_mode;
  const auto replicated = variable_updates().get("replicated")(served(1, "tf_momentum"));
  replicated->parameters(0).declare({.name = "fc.weight", .shape = {37, 41}});
  replicated->parameters(0).declare({.name = "fc.bias", .shape = {5}});
  replicated->parameters(0).declare_buffer({.name = "bn.running_mean", .shape = {5}});
  replicated->allocate();
  replicated->save(other_mode);
  resumed->load(other_mode);
  EXPECT_EQ(applied_by(*resumed), 0);
}

TEST(AsynchronousUpdate, FrozenAndMaskedParametersAreTheServersToo) {
  const auto update = make_served(served(2, "tf_momentum", 0.5));
  const nn::ParameterId bias = *update->parameters(0).find("fc.bias"),
                        weight = *update->parameters(0).find("fc.weight");
  const at::Tensor start = update->saved_parameters().value(bias).clone();
  for (int r = 0; r < 2; ++r) update->parameters(r).set_trainable(bias, false);
  EXPECT_FALSE(update->saved_parameters().trainable(bias));
  update->saved_parameters().set_mask(weight, at::zeros_like(update->parameters(0).value(weight)));
  const optim::StepState state = served_step();
  for (const int r : {1, 0}) {
    update->parameters(r).gradients().fill_(1);
    update->update(r, state, 0);
    EXPECT_TRUE(update->parameters(r).value(bias).equal(start)) << "decay would have moved it";
    EXPECT_EQ(largest(update->parameters(r).value(weight)), 0);
  }
  update->parameters(0).set_trainable(bias, true);
  update->update(0, state, 0);
  EXPECT_FALSE(update->parameters(0).value(bias).equal(start));
}

// Tensorpack's AsyncMultiGPUTrainer with scale_gradient: 1 / n of each gradient, the weight decay in it.
TEST(AsynchronousUpdate, WithAMeanAppliesAPartOfEachGradient) {
  VariableUpdateOptions options = served(4, "tf_momentum", 0.125);
  options.reduction = GradientReduction::kMean;
  const auto update = make_served(options);
  EXPECT_EQ(update->reduction(), GradientReduction::kMean);
  const optim::StepState state = served_step();
  const at::NoGradGuard without_gradients;
  const nn::ParameterId weight = *update->parameters(0).find("fc.weight");
  at::Tensor values = update->parameters(0).value(weight).clone(), velocity = at::zeros_like(values);
  for (const int r : {0, 3, 0, 1}) {
    update->parameters(r).gradients().fill_(1.0 + r);
    velocity = velocity.mul(0.9).add(values.mul(0.125).add(1.0 + r).div(4));
    values = values.sub(velocity.mul(kServerRate));
    update->update(r, state, 0);
    EXPECT_LT(largest(update->parameters(r).value(weight) - values), 1e-13) << r;
  }
  options.reduction = GradientReduction::kSum;
  const auto whole = make_served(options), plain = make_served(served(4, "tf_momentum", 0.125));
  for (AsynchronousUpdate* each : {whole.get(), plain.get()}) {
    each->parameters(2).gradients().fill_(1);
    each->update(2, state, 0);
  }
  EXPECT_TRUE(whole->saved_parameters().values().equal(plain->saved_parameters().values()));
}

TEST(AsynchronousUpdate, RefusesWhatItCannotDo) {
  VariableUpdateOptions options = served(2, "sgd");
  options.parameters.device = at::kMeta;
  EXPECT_THAT(core::message_of([&] { make_served(options); }, core::ErrorCode::kUnsupported),
              HasSubstr("do not work on devices yet"));
}

TEST(AsynchronousUpdate, AlphaOfLookaheadCannotChangeOverUpdatesOfSeveralReplicas) {
  const auto message = [](int replicas, std::optional<double> final_alpha) {
    VariableUpdateOptions options = served(replicas, "sgd");
    options.make_optimizers = {[=](nn::ParameterSet& set) {
      return optim::optimizers().get("sgd")(
          set, {.lookahead = optim::Lookahead{.steps = 2, .final_alpha = final_alpha, .updates = 10}});
    }};
    return core::message_of([&] { make_served(options); }, core::ErrorCode::kUnsupported);
  };
  EXPECT_EQ(message(2, std::nullopt), "no error");
  EXPECT_EQ(message(1, 0.9), "no error");
  EXPECT_THAT(message(2, 0.9), HasSubstr("Lookahead's alpha cannot change over an asynchronous training"));
}

}  // namespace
}  // namespace trainyard::parallel::asynchronous_test
