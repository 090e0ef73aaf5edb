// That what is announced is what is used: tests/run_identity_test.py, in processes of their own.
#include "trainyard/train/devices/run_memory.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/nn/execution/device_memory.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/fake_accelerator.h"
#include "trainyard/train/testing/tiny_model.h"

namespace trainyard::train::run_memory_test {
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
      TowerTrainerOptions options = tiny_options({}, replicas);
      options.devices.executor = "cpu";
      options.exchange.variable_update = update;
      TowerTrainer trainer(options, tiny_source(24, 6, replicas));
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

TEST(RunMemory, CanBePlannedForAnyBatchBeforeTheFirstStep) {
  for (const int replicas : {1, 2}) {
    TowerTrainerOptions options = tiny_options({}, replicas);
    options.devices.executor = "cpu";
    options.devices.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
    TowerTrainer trainer(options, tiny_source(24, 6, replicas));
    const RunMemory six = plan_memory(trainer, 6), sixty = plan_memory(trainer, 60);
    EXPECT_EQ(six.program, 0);
    ASSERT_TRUE(six.executor && sixty.executor);
    EXPECT_GT(sixty.executor->activations, 5 * six.executor->activations);
    EXPECT_FALSE(trainer.memory()) << "nothing has run";
    // The plan is what the run then takes.
    trainer.train({.steps_per_epoch = 1});
    const RunMemory& taken = *trainer.memory();
    EXPECT_EQ(taken.parameters, six.parameters);
    EXPECT_EQ(taken.gradients, six.gradients);
    EXPECT_EQ(taken.optimizer, six.optimizer);
    EXPECT_EQ(taken.executor->activations, six.executor->activations);
    EXPECT_EQ(plan_memory(trainer, 60).total(), sixty.total()) << "after a training, too";
  }
  TowerTrainerOptions options = tiny_options();
  options.devices.executor = "reference";
  TowerTrainer reference(options, tiny_source(24, 6));
  EXPECT_FALSE(plan_memory(reference, 6).executor);
}

TEST(RunMemory, OfTheReferenceHasNoActivations) {
  TowerTrainerOptions options = tiny_options();
  options.devices.executor = "reference";
  TowerTrainer trainer(options, tiny_source(24, 6));
  trainer.train({.steps_per_epoch = 1});
  EXPECT_FALSE(trainer.memory()->executor);
}

// An accelerator of `room` bytes.
class SmallAccelerator : public FakeAccelerator {
 public:
  explicit SmallAccelerator(int64_t room) : room_(room) {}
  nn::DeviceMemory memory() override { return {.total = room_, .limit = room_, .free = 0, .held = room_, .used = 0}; }

 private:
  int64_t room_;
};

// What a batch takes is counted by definition: pixels, labels and activations of each image beside the parameters,
// their gradients and the momentum.
TEST(RunMemory, TellsWhichBatchFitsWhereThisOneDoesNot) {
  TowerTrainerOptions options = tiny_options({.batch_norm = false});
  const int64_t parameters = TowerTrainer(options, tiny_source(24, 8)).parameters().values().nbytes();
  const int64_t image = 4 * 3 * 5 * 5 + 8 + nn::activation_bytes_per_image(options.graph, 4, /*training=*/true);
  options.devices.accelerators = {std::make_shared<SmallAccelerator>(3 * parameters + 5 * image + image / 2)};
  options.hooks.reduce_pre = [](int, nn::ParameterSet&) { TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory"); };
  TowerTrainer trainer(options, tiny_source(24, 8));
  const std::string message =
      core::message_of([&] { trainer.train({.steps_per_epoch = 1}); }, core::ErrorCode::kNoSpace);
  EXPECT_NE(message.find("with a batch of 8"), std::string::npos) << message;
  EXPECT_NE(message.find("about 5 fits"), std::string::npos) << message;
}

}  // namespace
}  // namespace trainyard::train::run_memory_test
