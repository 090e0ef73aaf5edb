#include "trainyard/data/device/image_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::data::image_device_test {
namespace {

TEST(ImageDevice, AKindThatIsNotBuiltInSaysWhatABuildNeeds) {
  EXPECT_THAT(core::message_of([] { open_image_device("no such kind", {}); }, core::ErrorCode::kUnsupported),
              ::testing::HasSubstr("this build decodes no images on a GPU; it needs CUDA"));
}

}  // namespace
}  // namespace trainyard::data::image_device_test
