#include "trainyard/frontends/options/device_names.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/environment.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/parallel/process_group/process_group.h"
#include "trainyard/parallel/testing/on_ranks.h"

namespace trainyard::frontends::device_names_test {
namespace {

TEST(DeviceNames, AreReplicasOrGpus) {
  EXPECT_EQ(read_device_names({"cpu"}).replicas, 1);
  EXPECT_EQ(read_device_names({"cpu:0", "/cpu:1", "/device:CPU:2"}).replicas, 3);
  EXPECT_TRUE(read_device_names({"cpu:0", "cpu:1"}).gpu_indices.empty());
  EXPECT_EQ(read_device_names({"cpu:0", "cpu:1"}).gpu, false);
  const DeviceOptions gpus = read_device_names({"gpu:2", "/GPU:0"});
  EXPECT_EQ(gpus.replicas, 2);
  EXPECT_EQ(gpus.gpu, true);
  EXPECT_EQ(gpus.gpu_indices, (std::vector<int>{2, 0}));
}

TEST(DeviceNames, SayWhatIsWrong) {
  EXPECT_EQ(core::message_of([] {
              read_device_names({"cpu:0", "gpu:0"});
            }),
            "CPUs and GPUs cannot train together: devices: expected such as cpu:0, cpu:1 or gpu:0, gpu:1, got [cpu:0, "
            "gpu:0]");
  EXPECT_EQ(core::problem_of([] { read_device_names({}); }), "there is no device to train on");
  for (const char* name : {"", "tpu:0", "cpu:", "cpu:x", "gpu:-1", "gpu:0x", "cpu:99999999999"}) {
    EXPECT_EQ(core::problem_of([&] { read_device_names({name}); }), "this is no name of a device") << name;
  }
  EXPECT_EQ(core::problem_of([] { read_device_names({"gpu:0", "/gpu:0"}); }), "a device is named twice");
  EXPECT_EQ(core::problem_of([] { read_device_names({"cpu", "cpu:0"}); }), "a device is named twice");
}

TEST(DeviceNames, OfCpusAreOpenedAsReplicas) {
  const DeviceOptions named = read_device_names({"cpu:0", "cpu:7", "cpu:3"});
  for (const train::OpenDevices& opened : {open_named_devices(named), open_named_devices_together(named)}) {
    EXPECT_EQ(opened.replicas, 3);
    EXPECT_TRUE(opened.accelerators.empty());
    EXPECT_TRUE(opened.processes == nullptr);
    EXPECT_EQ(opened.ranks(), 1);
  }
}

// A process of several takes part in their exchange: several GPUs of one cannot, and one GPU waits for its rank.
TEST(DeviceNames, OfOneProcessOfSeveralAreOpenedTogether) {
  const core::EnvironmentVariable size("SLURM_STEP_NUM_TASKS", "2"), step("SLURM_STEP_ID", "0");
  const core::EnvironmentVariable terminal("SLURM_PTY_PORT", std::nullopt), world("WORLD_SIZE", std::nullopt);
  const auto message = [](const std::vector<std::string>& names, core::ErrorCode code) {
    return core::message_of([&] { open_named_devices_together(read_device_names(names)); }, code);
  };
  EXPECT_THAT(message({"gpu:0", "gpu:1"}, core::ErrorCode::kUnsupported),
              ::testing::StartsWith("--variable_update=collective_all_reduce is between CPUs"));
  EXPECT_THAT(message({"gpu:3"}, core::ErrorCode::kInvalidArgument),
              ::testing::StartsWith("the variable WORLD_SIZE is not set"));
}

TEST(DeviceNames, ReplicasOfSeveralProcessesGiveWhatThoseOfOneGive) {
  train::OpenDevices alone;
  alone.replicas = 2;
  EXPECT_EQ(variable_update_of(alone, "replicated"), "replicated");
  EXPECT_EQ(variable_update_of(alone, "parameter_server"), "parameter_server");
  parallel::on_ranks(2, [](const std::shared_ptr<parallel::ProcessGroup>& group) {
    train::OpenDevices opened;
    opened.processes = group;
    EXPECT_EQ(variable_update_of(opened, "replicated"), "horovod");
    opened.replicas = 2;
    EXPECT_EQ(variable_update_of(opened, "replicated"), "collective_all_reduce");
  });
}

}  // namespace
}  // namespace trainyard::frontends::device_names_test
