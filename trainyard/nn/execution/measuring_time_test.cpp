#include "trainyard/nn/execution/measuring_time.h"

#include <gtest/gtest.h>

namespace trainyard::nn::measuring_time_test {
namespace {

TEST(MeasuringTime, ALongerRunMayMeasureForLonger) {
  // 100 steps of ResNet-50 with 32 images, and eight epochs of a network for CIFAR-10.
  EXPECT_LT(MeasuringTime::seconds_of(3 * 8.2e9 * 32 * 100, 2), MeasuringTime::kLeastSeconds);
  EXPECT_DOUBLE_EQ(MeasuringTime::seconds_of(3e14, 2), 10);
  EXPECT_DOUBLE_EQ(MeasuringTime::seconds_of(3e14, 1), 20);
  EXPECT_DOUBLE_EQ(MeasuringTime::seconds_of(3e14, 0), 20);
  EXPECT_DOUBLE_EQ(MeasuringTime::seconds_of(1e30, 2), 60);
}

TEST(MeasuringTime, IsSpentByAllOfAProcess) {
  MeasuringTime time;
  EXPECT_DOUBLE_EQ(time.left(), 4);
  time.spend(3);
  time.allow(2);
  EXPECT_DOUBLE_EQ(time.allowed(), 4);
  EXPECT_DOUBLE_EQ(time.left(), 1);
  time.allow(10);
  EXPECT_DOUBLE_EQ(time.left(), 7);
  time.spend(8);
  EXPECT_DOUBLE_EQ(time.left(), -1);
}

}  // namespace
}  // namespace trainyard::nn::measuring_time_test
