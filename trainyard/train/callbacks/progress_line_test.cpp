#include "trainyard/train/callbacks/progress_line.h"

#include <gtest/gtest.h>

namespace trainyard::train::progress_line_test {
namespace {

TEST(ProgressLine, SaysWhatIsKnown) {
  RunProgress progress{.model = "resnet20", .step = 1234, .steps = 3600, .epoch = 4, .epochs = 10};
  EXPECT_EQ(progress_line(progress), "resnet20 epoch 4/10 34 % 1234/3600");
  progress.images_per_second = 812.4;
  progress.loss = 0.5213;
  progress.learning_rate = 0.05;
  progress.seconds_left = 83.4;
  EXPECT_EQ(progress_line(progress), "resnet20 epoch 4/10 34 % 1234/3600 812 images/s loss 0.521 rate 0.05 left 1:23");
  progress.images_per_second = 1.26;
  progress.doing = "evaluating 12/40";
  EXPECT_EQ(progress_line(progress), "resnet20 epoch 4/10 34 % 1234/3600 evaluating 12/40");
  progress.doing.clear();
  progress.epochs = 0;
  progress.seconds_left = 3723;
  EXPECT_EQ(progress_line(progress), "resnet20 34 % 1234/3600 1.3 images/s loss 0.521 rate 0.05 left 1:02:03");
}

TEST(ProgressLine, FitsTheTerminal) {
  const RunProgress progress{.model = "inception_resnet_v2",
                             .step = 123'456,
                             .steps = 360'000,
                             .epoch = 31,
                             .epochs = 90,
                             .images_per_second = 1812.4,
                             .loss = 0.5213,
                             .learning_rate = 0.05,
                             .seconds_left = 36'083.4,
                             .accuracy = 0.9128};
  EXPECT_EQ(progress_line(progress),
            "inception_resnet_v2 epoch 31/90 34 % 123456/360000 1812 images/s loss 0.521 accuracy 0.913 rate 0.05 left "
            "10:01:23");
  EXPECT_EQ(progress_line(progress, 110),
            "inception_resnet_v2 epoch 31/90 34 % 123456/360000 1812 images/s loss 0.521 accuracy 0.913 left 10:01:23");
  EXPECT_EQ(progress_line(progress, 79),
            "epoch 31/90 123456/360000 1812 images/s loss 0.521 accuracy 0.913 left 10:01:23");
  EXPECT_EQ(progress_line(progress, 40), "123456/360000 1812 images/s loss 0.521 accuracy 0.913 left 10:01:23");
}

TEST(ProgressLine, HundredPercentIsTheEnd) {
  EXPECT_EQ(progress_line({.model = "m", .step = 999, .steps = 1000}), "m 99 % 999/1000");
  EXPECT_EQ(progress_line({.model = "m", .step = 1000, .steps = 1000}), "m 100 % 1000/1000");
}

// 50,000 images by 128: 390.625 steps an epoch, and 12 epochs are 4,688 steps, of which the last one ends in the
// thirteenth.
TEST(ProgressLine, AStepBelongsToTheEpochThatItBeginsIn) {
  EXPECT_EQ(epoch_of_step(1, 128, 50000), 1);
  EXPECT_EQ(epoch_of_step(391, 128, 50000), 1);
  EXPECT_EQ(epoch_of_step(392, 128, 50000), 2);
  EXPECT_EQ(epoch_of_step(4688, 128, 50000), 12);
  EXPECT_EQ(epoch_of_step(125, 64, 8000), 1);
  EXPECT_EQ(epoch_of_step(126, 64, 8000), 2);
  EXPECT_EQ(epoch_of_step(0, 64, 8000), 1);
}

TEST(ProgressLine, Durations) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(3599), "59:59");
  EXPECT_EQ(duration_text(360000), "100:00:00");
  EXPECT_EQ(duration_text(-1), "0:00");
}

}  // namespace
}  // namespace trainyard::train::progress_line_test
