// That what is announced is what is used: tests/run_identity_test.py, in processes of their own.
#include "trainyard/train/loop/run_memory.h"

#include <gtest/gtest.h>

#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(RunMemory, IsOneLine) {
  RunMemory memory{.parameters = 98 * kMiB, .gradients = 97 * kMiB, .optimizer = 96 * kMiB, .program = 150 * kMiB};
  memory.add(nn::ExecutorMemory{.activations = 1000 * kMiB});
  EXPECT_EQ(memory_line(memory),
            "memory: 98 MiB parameters, 97 MiB gradients, 96 MiB optimizer, 1000 MiB activations, 150 MiB program and "
            "input; 1441 MiB in all");
  memory.add(nn::ExecutorMemory{.activations = 24 * kMiB, .packed_weights = 5 * kMiB});
  EXPECT_EQ(
      memory_line(memory),
      "memory: 98 MiB parameters, 97 MiB gradients, 96 MiB optimizer, 1024 MiB activations, 5 MiB packed weights, "
      "150 MiB program and input; 1470 MiB in all");
  memory.add(std::nullopt);
  EXPECT_EQ(memory_line(memory),
            "memory: 98 MiB parameters, 97 MiB gradients, 96 MiB optimizer, 150 MiB program and input; 441 MiB in all "
            "and activations, which this executor does not plan");
}

TEST(RunMemory, IsKnownFromTheFirstStepOn) {
  for (const int replicas : {1, 2}) {
    for (const char* update : {"replicated", "parameter_server"}) {
      SingleCostOptions options = tiny_options({}, replicas);
      options.executor = "cpu";
      options.variable_update = update;
      SingleCostTrainer trainer(options, tiny_source(24, 6, replicas));
      EXPECT_FALSE(trainer.memory());
      trainer.train({.steps_per_epoch = 1});
      ASSERT_TRUE(trainer.memory());
      const RunMemory& memory = *trainer.memory();
      const auto set = static_cast<int64_t>(trainer.parameters().values().nbytes());
      const int64_t copies = std::string(update) == "replicated" ? replicas : 1;
      constexpr int64_t kStatistics = 2 * 8 * 4;  // mean and variance of 8 channels, of each replica
      EXPECT_EQ(memory.parameters, copies * set + replicas * kStatistics);
      EXPECT_EQ(memory.gradients, replicas * set);
      EXPECT_EQ(memory.optimizer, copies * set) << "momentum";
      ASSERT_TRUE(memory.executor);
      EXPECT_GE(memory.executor->activations, replicas * 6 * (75 + 8 * 25) * 4);
      EXPECT_GT(memory.program, 10 * kMiB);
      EXPECT_LT(memory.total(), 4096 * kMiB);
    }
  }
}

TEST(RunMemory, OfTheReferenceHasNoActivations) {
  SingleCostOptions options = tiny_options();
  options.executor = "reference";
  SingleCostTrainer trainer(options, tiny_source(24, 6));
  trainer.train({.steps_per_epoch = 1});
  EXPECT_FALSE(trainer.memory()->executor);
}

}  // namespace
}  // namespace trainyard::train
