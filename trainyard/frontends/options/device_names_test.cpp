#include "trainyard/frontends/options/device_names.h"

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

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

}  // namespace
}  // namespace trainyard::frontends::device_names_test
