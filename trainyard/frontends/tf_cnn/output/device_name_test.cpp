#include "trainyard/frontends/tf_cnn/output/device_name.h"

#include <memory>

#include <gtest/gtest.h>

#include "trainyard/train/testing/fake_accelerator.h"

namespace trainyard::frontends::device_name_test {
namespace {

struct Gpu : train::FakeAccelerator {
  explicit Gpu(int index) : place(at::kCUDA, static_cast<c10::DeviceIndex>(index)) {}
  at::Device device() const override { return place; }
  at::Device place;
};

TEST(DeviceName, OfACpuIsTheReplicasAndOfAGpuItsOwn) {
  train::OpenDevices devices;
  devices.replicas = 3;
  EXPECT_EQ(device_name(devices, 0), "/cpu:0");
  EXPECT_EQ(device_name(devices, 2), "/cpu:2");
  devices.accelerators = {std::make_shared<Gpu>(4), std::make_shared<Gpu>(0), std::make_shared<Gpu>(7)};
  EXPECT_EQ(device_name(devices, 0), "/gpu:4");
  EXPECT_EQ(device_name(devices, 1), "/gpu:0");
  EXPECT_EQ(device_name(devices, 2), "/gpu:7");
}

}  // namespace
}  // namespace trainyard::frontends::device_name_test
