#include "trainyard/data/device/device_transform.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::data::device_transform_test {
namespace {

using ::testing::HasSubstr;

TransformOptions sampled_on_device(bool training) {
  TransformOptions options;
  options.training = training;
  options.distortions = false;
  return options;
}

// What is said of the options after a change; "no error" where the device can do it.
std::string said_of(bool training, void (*change)(TransformOptions&)) {
  TransformOptions options = sampled_on_device(training);
  change(options);
  return core::message_of([&] { check_device_transform(options); }, core::ErrorCode::kUnsupported);
}

TEST(DeviceTransform, NamesWhatOnlyTheCpuDoesInTraining) {
  const struct {
    void (*change)(TransformOptions&);
    const char* said;
  } cases[] = {
      {[](TransformOptions& o) { o.distortions = true; }, "got colour distortions; pass --nodistortions"},
      {[](TransformOptions& o) { o.auto_augment.policy = AutoAugmentPolicy::kTrivial; },
       "got automatic augmentation; leave --auto_augment out"},
      {[](TransformOptions& o) { o.random_erasing.probability = 0.5F; },
       "got random erasing; leave --random_erasing out"},
      {[](TransformOptions& o) { o.cutout = 8; }, "got cutout; leave --cutout out"},
  };
  for (const auto& [change, said] : cases) {
    EXPECT_THAT(said_of(true, change), HasSubstr(said));
    EXPECT_EQ(said_of(false, change), "no error") << said << ", which an evaluation does not do";
  }
}

TEST(DeviceTransform, NamesHowImagesAreDecodedAndScaled) {
  const auto crop = [](TransformOptions& o) { o.resize_method = "crop"; };
  const auto scaled = [](TransformOptions& o) { o.scaled_decode = true; };
  const auto eval_scaled = [](TransformOptions& o) { o.eval_scaled_decode = true; };
  for (const bool training : {false, true}) {
    EXPECT_THAT(said_of(training, crop), HasSubstr("got the resize method crop; choose another --resize_method"));
    const std::string of_training = said_of(training, scaled), of_evaluation = said_of(training, eval_scaled);
    EXPECT_THAT(training ? of_training : of_evaluation,
                HasSubstr("got decoding at a part of the size; pass --noscaled_decode"));
    EXPECT_EQ(training ? of_evaluation : of_training, "no error");
    EXPECT_EQ(said_of(training, [](TransformOptions&) {}), "no error");
  }
}

}  // namespace
}  // namespace trainyard::data::device_transform_test
