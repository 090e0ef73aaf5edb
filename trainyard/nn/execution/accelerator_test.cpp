#include "trainyard/nn/execution/accelerator.h"

#include <cmath>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/skip_reasons.h"

namespace trainyard::nn {
namespace {

TEST(Accelerator, AKindThatIsNotBuiltInIsRefused) {
  EXPECT_EQ(accelerator_count("tpu"), 0);
  EXPECT_THROW(open_accelerator("tpu", {}), core::Error);
}

TEST(Accelerator, OptionsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(open_accelerator("cuda", {.index = -1}), core::Error);
  EXPECT_THROW(open_accelerator("cuda", {.memory_fraction = -0.1}), core::Error);
  EXPECT_THROW(open_accelerator("cuda", {.memory_fraction = 1.1}), core::Error);
  EXPECT_THROW(AcceleratorOptions{.memory_fraction = std::nan("")}.validate(), core::Error);
  EXPECT_NO_THROW((AcceleratorOptions{.memory_fraction = 1.5, .managed_memory = true}.validate()));
  EXPECT_THROW((AcceleratorOptions{.memory_fraction = 1e300, .managed_memory = true}.validate()), core::Error);
}

TEST(Accelerator, AMachineWithoutGpusSaysWhatIsMissing) {
  if (accelerator_count("cuda") > 0) GTEST_SKIP() << core::skip::kNeedsNoGpu;
  try {
    open_accelerator("cuda", {});
    FAIL() << "opened a GPU that is not there";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported);
    EXPECT_FALSE(error.detail().remedy.empty());
  }
}

// A kind of the test's own: which of its devices was opened.
TEST(Accelerator, AnIndexBeyondTheDevicesIsRefused) {
  static int opened = -1;
  static const core::Registration<AcceleratorKind> kFake(
      accelerators(), "fake",
      AcceleratorKind{.count = [] { return 2; },
                      .open = [](const AcceleratorOptions& options) -> std::shared_ptr<Accelerator> {
                        opened = options.index;
                        return nullptr;
                      }});
  EXPECT_EQ(accelerator_count("fake"), 2);
  open_accelerator("fake", {.index = 1});
  EXPECT_EQ(opened, 1);
  EXPECT_THROW(open_accelerator("fake", {.index = 2}), core::Error);
}

}  // namespace
}  // namespace trainyard::nn
