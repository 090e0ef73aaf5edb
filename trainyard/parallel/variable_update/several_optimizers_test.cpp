// Variable updates with two optimizers that take turns, as those of a GAN do.
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/parallel/collectives/threads/thread_communicator.h"
#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::parallel::several_optimizers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kPlayersRate = 0.1;

std::function<std::unique_ptr<optim::Optimizer>(nn::ParameterSet&)> player(const std::string& name,
                                                                           const std::string& pattern) {
  return [=](nn::ParameterSet& set) { return optim::optimizers().get(name)(set, {.parameters = {pattern}}); };
}

std::unique_ptr<VariableUpdate> make_players(const std::string& mode, int replicas,
                                             const std::string& second = "discriminator.*") {
  VariableUpdateOptions options{.replicas = replicas,
                                .parameters = {.dtype = at::kDouble},
                                .make_optimizers = {player("sgd", "generator.*"), player("tf_momentum", second)},
                                .seed = 3,
                                .deadline = std::chrono::seconds(20)};
  if (mode == "horovod") options.make_communicators = [] { return make_thread_communicators(1); };
  auto update = variable_updates().get(mode)(options);
  for (int r = 0; r < replicas; ++r) {
    for (const char* name : {"generator.weight", "discriminator.weight"}) {
      update->parameters(r).declare({.name = name, .shape = {5, 7}, .init = nn::Initializer::normal(1.0)});
    }
  }
  update->allocate();
  return update;
}

// In each step the discriminator gets gradients of 1 and the generator, after it, of 2, from every replica.
void play(VariableUpdate& update, int replicas, int steps) {
  optim::StepState state;
  state.write({.learning_rate = kPlayersRate});
  std::vector<core::Thread> threads;
  for (int r = 0; r < replicas; ++r) {
    threads.emplace_back(core::ThreadOptions{}, [&, r] {
      const at::NoGradGuard without_gradients;
      for (int step = 0; step < steps; ++step) {
        for (const int optimizer : {1, 0}) {
          update.parameters(r).gradients().fill_(optimizer == 1 ? 1.0 : 2.0);
          update.reduce(r);
          update.update(r, state, optimizer);
        }
      }
    });
  }
  for (core::Thread& thread : threads) thread.join();
}

double first_of(nn::ParameterSet& set, const std::string& name) {
  return set.value(*set.find(name))[0][0].item<double>();
}

// The changes by sgd and by momentum 0.9 after `steps` constant gradients.
double moved_by_sgd(double gradient, int steps) {
  return -kPlayersRate * gradient * steps;
}
double moved_by_momentum(double gradient, int steps) {
  double velocity = 0, moved = 0;
  for (int step = 0; step < steps; ++step) {
    velocity = 0.9 * velocity + gradient;
    moved -= kPlayersRate * velocity;
  }
  return moved;
}

class SeveralOptimizers : public testing::TestWithParam<std::string> {
 protected:
  int replicas() const { return GetParam() == "horovod" ? 1 : 2; }
  // How many times a gradient counts in one step of the loop: summed, or applied one by one.
  int times() const { return GetParam() == "replicated" || GetParam() == "asynchronous" ? 2 : 1; }
};

TEST_P(SeveralOptimizers, EachMovesItsOwnParameters) {
  const auto update = make_players(GetParam(), replicas());
  const double generator = first_of(update->parameters(0), "generator.weight");
  const double discriminator = first_of(update->parameters(0), "discriminator.weight");
  play(*update, replicas(), 4);
  const bool one_by_one = GetParam() == "asynchronous";
  nn::ParameterSet& saved = update->saved_parameters();
  EXPECT_NEAR(first_of(saved, "generator.weight"), generator + moved_by_sgd(2.0 * times(), 4), 1e-12);
  EXPECT_NEAR(first_of(saved, "discriminator.weight"),
              discriminator + (one_by_one ? moved_by_momentum(1.0, 8) : moved_by_momentum(1.0 * times(), 4)), 1e-12);
  EXPECT_TRUE(update->optimizer(0, 0)->slots().empty());
  ASSERT_EQ(update->optimizer(0, 1)->slots().size(), 1U);
  EXPECT_EQ(update->optimizer(0), update->optimizer(0, 0));
  EXPECT_GT(update->optimizer_bytes(), 0);
}

TEST_P(SeveralOptimizers, AllAreSavedAndLoaded) {
  const auto update = make_players(GetParam(), replicas()), resumed = make_players(GetParam(), replicas());
  play(*update, replicas(), 3);
  core::MemoryState saved;
  update->save(saved);
  EXPECT_THAT(saved.names("optimizer/"), ElementsAre("optimizer/discriminator.weight.momentum"));
  resumed->load(saved);
  play(*update, replicas(), 2);
  play(*resumed, replicas(), 2);
  // To rounding only: asynchronous replicas come in any order.
  EXPECT_LT((resumed->saved_parameters().values() - update->saved_parameters().values()).abs().max().item<double>(),
            1e-12);
}

TEST_P(SeveralOptimizers, MustNotShareAParameter) {
  const std::string message = core::message_of([&] { make_players(GetParam(), replicas(), "*"); });
  EXPECT_THAT(message, HasSubstr("two optimizers update one parameter"));
  EXPECT_THAT(message, HasSubstr("generator.weight"));
}

// One update of each rank's part would leave out the other optimizer.
TEST(ShardingOfSeveralOptimizers, IsRefusedByName) {
  const auto refusal = [](VariableUpdateOptions options) {
    options.replicas = 2;
    options.sharding.use = Sharding::Use::kAlways;
    const auto update = variable_updates().get("replicated")(options);
    for (int r = 0; r < 2; ++r) {
      for (const char* name : {"generator.weight", "discriminator.weight"}) {
        update->parameters(r).declare({.name = name, .shape = {5, 7}, .init = nn::Initializer::normal(1.0)});
      }
    }
    return core::message_of([&] { update->allocate(); }, core::ErrorCode::kUnsupported);
  };
  const auto one = [](nn::ParameterSet& set) { return optim::optimizers().get("tf_momentum")(set, {}); };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(refusal({.make_optimizers = {one}}), "no error");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("each of 2 ranks updates its part of the parameters, and keeps the optimizer's state of that"));
  EXPECT_THAT(refusal({.make_optimizers = {player("sgd", "generator.*"), player("tf_momentum", "discriminator.*")}}),
              HasSubstr("several optimizers take turns"));
  EXPECT_THAT(refusal({.make_optimizers = {one}, .packing = {.parts = 2}}),
              HasSubstr("gradients are joined into packs"));
  ::testing::internal::CaptureStderr();
  const std::string compressed =
      refusal({.make_optimizers = {one}, .compression = {.method = CompressionMethod::kTopK}});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("gradients are compressed: the largest 1 % of each gradient, "));
  EXPECT_THAT(compressed, HasSubstr("gradients are compressed"));
}

INSTANTIATE_TEST_SUITE_P(All, SeveralOptimizers,
                         testing::Values("parameter_server", "replicated", "independent", "horovod", "asynchronous"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace trainyard::parallel::several_optimizers_test
