// Batches on their way to an accelerator that is a fake on the CPU, which copies as late as it may.
#include "trainyard/train/step/batch_transfer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "trainyard/train/testing/fake_accelerator.h"

namespace trainyard::train::batch_transfer_test {
namespace {

data::Batch batch_of(double value, int64_t count = 2) {
  return {.tensors = {{"images", at::full({count, 3, 2, 2}, value, at::kFloat)},
                      {"labels", at::full({count}, static_cast<int64_t>(value), at::kLong)}},
          .first_sample = 5,
          .after = {.epoch = 1, .offset = static_cast<int64_t>(value)}};
}

struct Rig {
  explicit Rig(bool keeps_images = true) : transfer(accelerator, keeps_images) {}
  std::shared_ptr<FakeAccelerator> accelerator = std::make_shared<FakeAccelerator>();
  BatchTransfer transfer;
};

TEST(BatchTransfer, WorkThatIsHandedOverAfterwardsFindsTheBatch) {
  Rig rig;
  for (int step = 0; step < 6; ++step) {
    const data::Batch placed = rig.transfer.move(batch_of(step));
    EXPECT_EQ(placed.images()[1][2][1][1].item<float>(), step);
    EXPECT_EQ(placed.labels()[1].item<int64_t>(), step);
    EXPECT_EQ(placed.first_sample, 5);
    EXPECT_EQ(placed.after, (data::Position{1, step}));
  }
}

TEST(BatchTransfer, TwoBuffersTakeTurns) {
  Rig rig;
  std::vector<const void*> places;
  for (int step = 0; step < 6; ++step) places.push_back(rig.transfer.move(batch_of(step)).images().const_data_ptr());
  EXPECT_NE(places[0], places[1]);
  for (size_t step = 2; step < places.size(); ++step) EXPECT_EQ(places[step], places[step - 2]);
}

// The point of it: a batch waits for the step that reads its buffer, and not for the one that runs meanwhile.
TEST(BatchTransfer, ABatchTravelsWhileTheStepBeforeItRuns) {
  Rig rig;
  std::vector<int64_t> ends;  // of each step, and of what looks at its batch afterwards, in pieces of work
  for (int step = 0; step < 6; ++step) {
    const size_t first = rig.accelerator->copies.size();
    rig.transfer.move(batch_of(step));
    ASSERT_EQ(rig.accelerator->copies.size(), first + 2);
    for (size_t copy = first; copy < first + 2; ++copy) {
      const int64_t behind = rig.accelerator->copies[copy].behind;
      if (step < 2) {
        // New memory, which the work so far may still use under another name.
        EXPECT_EQ(behind, step == 0 ? 0 : ends[0]) << step;
      } else {
        EXPECT_EQ(behind, ends[static_cast<size_t>(step) - 2]) << step;
      }
    }
    rig.accelerator->compute();
    ends.push_back(rig.accelerator->compute());
  }
}

TEST(BatchTransfer, AnotherSizeGetsMemoryThatNothingUsesAnyMore) {
  Rig rig;
  for (int step = 0; step < 4; ++step) {
    rig.transfer.move(batch_of(step));
    rig.accelerator->compute();
  }
  const data::Batch placed = rig.transfer.move(batch_of(7, 5));
  EXPECT_EQ(placed.images().size(0), 5);
  EXPECT_EQ(placed.images()[4][0][0][0].item<float>(), 7);
  EXPECT_EQ(rig.accelerator->copies.back().behind, 4);
}

// Images of another device than the host's were made there.
TEST(BatchTransfer, ImagesThatWereMadeOnTheDeviceStayAndAreKept) {
  Rig rig;
  for (int step = 0; step < 3; ++step) {
    data::Batch batch = batch_of(step);
    batch.tensors.set("images", at::empty({2, 3, 2, 2}, at::TensorOptions(at::kHalf).device(at::kMeta)));
    const data::Batch placed = rig.transfer.move(batch);
    EXPECT_TRUE(placed.images().is_same(batch.images()));
    EXPECT_TRUE(rig.accelerator->kept.back().is_same(batch.images()));
    EXPECT_EQ(placed.labels()[1].item<int64_t>(), step);
  }
  EXPECT_EQ(rig.accelerator->kept.size(), 3);
  EXPECT_EQ(rig.accelerator->copies.size(), 3);  // labels
}

TEST(BatchTransfer, TheSameImagesTravelOnceToEachBufferUnlessTheyMayBeChanged) {
  for (const bool keeps : {true, false}) {
    Rig rig(keeps);
    data::Batch batch = batch_of(1);
    for (int step = 0; step < 6; ++step) {
      batch.tensors.set("labels", at::full({2}, step, at::kLong));
      data::Batch placed = rig.transfer.move(batch);
      EXPECT_EQ(placed.labels()[0].item<int64_t>(), step);
      EXPECT_EQ(placed.images()[0][0][0][0].item<float>(), keeps && step >= 2 ? 7 : 1);
      placed.images().fill_(7);
    }
    EXPECT_EQ(rig.accelerator->copies.size(), keeps ? 2 + 6 : 6 + 6);
  }
}

}  // namespace
}  // namespace trainyard::train::batch_transfer_test
