// Every optimizer in every variable update: who keeps and updates the variables does not change the numbers.
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/allclose.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::optimizers_in_updates_test {
namespace {

struct Kind {
  std::string optimizer;
  bool lookahead = false;
  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) {
    return out << kind.optimizer << (kind.lookahead ? "_lookahead" : "");
  }
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const std::string& name : optim::optimizers().names()) all.push_back({name});
  all.push_back({"torch_momentum", true});
  all.push_back({"torch_adamw", true});
  return all;
}

class OptimizersInUpdates : public ::testing::TestWithParam<Kind> {
 protected:
  static std::unique_ptr<TowerTrainer> trainer(const std::string& mode, int replicas, int64_t batch = 8) {
    TowerTrainerOptions options = tiny_options({.batch_norm = false}, replicas);
    options.exchange.variable_update = mode;
    options.make_optimizer = [kind = GetParam()](nn::ParameterSet& set) {
      optim::OptimizerOptions chosen{.weight_decay = 1e-3};
      if (kind.lookahead) chosen.lookahead = {.steps = 2, .alpha = 0.5};
      return optim::optimizers().get(kind.optimizer)(set, chosen);
    };
    options.learning_rate = optim::constant(0.01);
    return std::make_unique<TowerTrainer>(options, tiny_source(240, batch, replicas));
  }
  static at::Tensor trained(const std::string& mode, int replicas, int64_t batch = 8) {
    const auto trainer = OptimizersInUpdates::trainer(mode, replicas, batch);
    trainer->train({.steps_per_epoch = 5});
    return trainer->parameters().values().clone();
  }
};

TEST_P(OptimizersInUpdates, OfOneReplicaAreTheSameBits) {
  const at::Tensor expected = trained("replicated", 1);
  EXPECT_FALSE(expected.equal(trainer("replicated", 1)->parameters().values())) << "five steps change something";
  for (const char* mode : {"parameter_server", "independent"}) EXPECT_TRUE(trained(mode, 1).equal(expected)) << mode;
  if (GetParam().optimizer.starts_with("schedule_free")) {
    const auto refusal = [](const char* mode) {
      return core::message_of([mode] { trainer(mode, 1); }, core::ErrorCode::kUnsupported);
    };
    const std::string refused = "a schedule-free optimizer does not work where replicas ";
    EXPECT_THAT(refusal("asynchronous"), ::testing::HasSubstr(refused + "update at their own pace"));
    EXPECT_THAT(refusal("staged_parameter_server"),
                ::testing::HasSubstr(refused + "read the values of one update before"));
  } else {
    EXPECT_TRUE(trained("asynchronous", 1).equal(expected));
  }
}

TEST_P(OptimizersInUpdates, OfTwoReplicasAreThoseOfOneWithTheirSamples) {
  const at::Tensor expected = trained("parameter_server", 1, 16);
  EXPECT_FALSE(at::allclose(trained("parameter_server", 1), expected, 1e-3, 1e-4)) << "half of the samples are missing";
  EXPECT_TRUE(at::allclose(trained("parameter_server", 2), expected, 1e-3, 1e-4));
}

TEST_P(OptimizersInUpdates, ContinueInEachWithTheSameBits) {
  for (const char* mode : {"parameter_server", "replicated", "independent"}) {
    for (const int replicas : {1, 2}) {
      const auto whole = trainer(mode, replicas), resumed = trainer(mode, replicas);
      core::MemoryState saved;
      whole->train({.steps_per_epoch = 3});
      whole->save(saved);
      whole->train({.steps_per_epoch = 6, .starting_step = 3});
      resumed->load(saved);
      resumed->train({.steps_per_epoch = 6, .starting_step = 3});
      EXPECT_TRUE(resumed->parameters().values().equal(whole->parameters().values())) << mode << " of " << replicas;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizersInUpdates, ::testing::ValuesIn(kinds()),
                         [](const auto& parameter) { return ::testing::PrintToString(parameter.param); });

}  // namespace
}  // namespace trainyard::train::optimizers_in_updates_test
