#include "trainyard/nn/execution/accelerator.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/skip_reasons.h"

namespace trainyard::nn::accelerator_test {
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

TEST(Accelerator, AFractionOfMemoryEndsWhereThereIsNoMore) {
  EXPECT_NO_THROW((AcceleratorOptions{.memory_fraction = 0}.validate()));
  EXPECT_NO_THROW((AcceleratorOptions{.memory_fraction = 1}.validate()));
  EXPECT_NO_THROW((AcceleratorOptions{.memory_fraction = 64, .managed_memory = true}.validate()));
  EXPECT_THAT(core::message_of([] { AcceleratorOptions{.memory_fraction = 1.25}.validate(); }),
              core::Says("the part of the device's memory is not usable", "[0, 1], got 1.25"));
  EXPECT_THAT(core::message_of([] { AcceleratorOptions{.memory_fraction = 64.5, .managed_memory = true}.validate(); }),
              core::Says("the part of the device's memory is not usable", "[0, 64], got 64.5"));
  EXPECT_THAT(core::message_of([] { AcceleratorOptions{.index = -3}.validate(); }),
              core::Says("there is no such device", "got -3"));
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
  EXPECT_EQ(core::message_of([] { open_accelerator("fake", {.index = 2}); }),
            "there is no such GPU: expected 0 to 1, got 2");
  EXPECT_EQ(opened, 1);
}

// A kind that is built in, on a machine that has none of its devices.
TEST(Accelerator, AKindWithoutADeviceIsNotOpened) {
  static const core::Registration<AcceleratorKind> kAbsent(
      accelerators(), "absent",
      AcceleratorKind{.count = [] { return 0; },
                      .open = [](const AcceleratorOptions&) -> std::shared_ptr<Accelerator> { return nullptr; }});
  EXPECT_EQ(core::message_of([] { open_accelerator("absent", {}); }, core::ErrorCode::kUnsupported),
            "this machine has no GPU that can be used; look at what nvidia-smi says; or use the CPU");
  EXPECT_EQ(core::message_of([] { open_accelerator("tpu", {}); }, core::ErrorCode::kUnsupported),
            "this build has no GPU support; it needs a build that has it; or use the CPU");
}

// Notes its number when it ends.
class Noting {
 public:
  Noting(std::vector<int>& ended, int number) : ended_(&ended), number_(number) {}
  ~Noting() { ended_->push_back(number_); }
  Noting(const Noting&) = delete;
  Noting& operator=(const Noting&) = delete;

 private:
  std::vector<int>* ended_;
  int number_;
};

TEST(AcceleratorScope, EndsWithTheLastOwnerAndInTheOppositeOrder) {
  static_assert(!std::is_copy_constructible_v<AcceleratorScope>);
  std::vector<int> ended;
  {
    AcceleratorScope all;
    EXPECT_FALSE(all.active());
    all.add(AcceleratorScope::by<Noting>(ended, 1));
    all.add(AcceleratorScope::by<Noting>(ended, 2));
    const AcceleratorScope moved = std::move(all);
    EXPECT_TRUE(moved.active());
    EXPECT_TRUE(ended.empty());
  }
  EXPECT_EQ(ended, (std::vector<int>{2, 1}));
}

// A device that notes its number when a thread begins to use it, and when it ends.
class Noted final : public Accelerator {
 public:
  Noted(std::vector<int>& begun, std::vector<int>& ended, int number)
      : begun_(&begun), ended_(&ended), number_(number) {}
  c10::Device device() const override { return {c10::kMeta}; }
  std::string name() const override { return "noted"; }
  AcceleratorScope use() override {
    begun_->push_back(number_);
    return AcceleratorScope::by<Noting>(*ended_, number_);
  }
  void wait() override {}
  void end_step() override {}
  std::unique_ptr<Mark> make_mark() override { return nullptr; }
  at::Tensor pinned(at::IntArrayRef /*sizes*/, at::ScalarType /*dtype*/) override { return {}; }
  void send(const at::Tensor& /*host*/, const at::Tensor& /*target*/) override {}
  void will_read(const at::Tensor& /*tensor*/) override {}
  std::unique_ptr<RecordedWork> record(const std::function<void()>& /*work*/) override { return nullptr; }
  DeviceMemory memory() override { return {}; }
  Refused refused() override { return {}; }

 private:
  std::vector<int>*begun_, *ended_;
  int number_;
};

// The device that is used last is the current one: the first of the list.
TEST(AcceleratorScope, OfSeveralDevicesTheFirstIsUsedLast) {
  std::vector<int> begun, ended;
  const std::vector<std::shared_ptr<Accelerator>> devices = {std::make_shared<Noted>(begun, ended, 0),
                                                             std::make_shared<Noted>(begun, ended, 1),
                                                             std::make_shared<Noted>(begun, ended, 2)};
  {
    const AcceleratorScope all = use_all(devices);
    EXPECT_EQ(begun, (std::vector<int>{2, 1, 0}));
    EXPECT_TRUE(ended.empty());
  }
  EXPECT_EQ(ended, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(use_all({}).active());
}

TEST(AcceleratorScope, AnotherOneInItsPlaceEndsTheFirst) {
  std::vector<int> ended;
  AcceleratorScope scope = AcceleratorScope::by<Noting>(ended, 1);
  scope = AcceleratorScope::by<Noting>(ended, 2);
  EXPECT_EQ(ended, std::vector<int>{1});
  scope = {};
  EXPECT_EQ(ended, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace trainyard::nn::accelerator_test
