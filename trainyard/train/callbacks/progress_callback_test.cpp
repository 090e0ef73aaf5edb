#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::train::progress_callback_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a run of `steps` draws on stderr; the clock goes on by two seconds with each look. The bar draws at most ten
// times a second of the real clock, so it is cleared after each step, which makes the next draw due.
std::string drawn(ProgressOptions options, int64_t steps, PretendTrainer& trainer,
                  const std::function<void(ProgressCallback&, int64_t)>& after = {}) {
  options.enabled = true;
  options.clock = [now = 0.0]() mutable { return now += 2; };
  const auto callback = std::make_shared<ProgressCallback>(options);
  trainer.in_step = [&, callback](int64_t step) {
    callback->clear();
    if (after) after(*callback, step);
  };
  testing::internal::CaptureStderr();
  run_callback(trainer, callback, {.steps_per_epoch = steps, .starting_step = trainer.global_step()});
  return testing::internal::GetCapturedStderr();
}

TEST(ProgressCallback, ShowsEpochSpeedLossRateAndTimeLeft) {
  PretendTrainer trainer;
  const std::string text =
      drawn({.model = "resnet20", .batch_size = 32, .examples_per_epoch = 64, .learning_rate = [] { return 0.05; }}, 6,
            trainer,
            [](ProgressCallback& callback, int64_t step) { callback.set_loss(1.0 / static_cast<double>(step + 1)); });
  // The first step is slower than the others and counts for no speed.
  EXPECT_THAT(text, HasSubstr("resnet20 epoch 1/3 16 % 1/6 loss 1 rate 0.05\r"));
  EXPECT_THAT(text, HasSubstr("resnet20 epoch 1/3 33 % 2/6 16 images/s loss 0.5 rate 0.05 left 0:08\r"));
  EXPECT_THAT(text, HasSubstr("resnet20 epoch 3/3 83 % 5/6 16 images/s loss 0.2 rate 0.05 left 0:02\r"));
  EXPECT_TRUE(text.ends_with("left 0:00\r\x1b[K")) << text;
}

TEST(ProgressCallback, GoesOnWhereAResumedRunDoes) {
  PretendTrainer trainer;
  trainer.train({.steps_per_epoch = 4});
  const std::string text = drawn({.model = "m", .batch_size = 8}, 8, trainer);
  EXPECT_THAT(text, HasSubstr("m 62 % 5/8\r"));
  EXPECT_THAT(text, HasSubstr("m 75 % 6/8 4.0 images/s left 0:04\r"));
}

TEST(ProgressCallback, SaysThatItEvaluates) {
  PretendTrainer trainer;
  const std::string text = drawn({.model = "m", .batch_size = 8, .examples_per_epoch = 16}, 4, trainer,
                                 [](ProgressCallback& callback, int64_t step) {
                                   if (step == 3) callback.show_evaluation(10, 40);
                                 });
  EXPECT_THAT(text, HasSubstr("\r\x1b[Km epoch 2/2 75 % 3/4 evaluating 10/40\r"));
}

TEST(ProgressCallback, WritesNothingWhenOff) {
  PretendTrainer trainer;
  testing::internal::CaptureStderr();
  const auto callback = std::make_shared<ProgressCallback>(ProgressOptions{.enabled = false, .batch_size = 8});
  run_callback(trainer, callback, {.steps_per_epoch = 4});
  callback->show_evaluation(1, 2);
  callback->clear();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ProgressCallback, ShowsTheAccuracyOfTheLastEvaluation) {
  PretendTrainer trainer;
  const std::string text =
      drawn({.model = "m", .batch_size = 8}, 4, trainer, [](ProgressCallback& callback, int64_t step) {
        if (step == 1) callback.set_accuracy(0.5);
      });
  EXPECT_THAT(text, HasSubstr("m 25 % 1/4\r"));
  EXPECT_THAT(text, HasSubstr("m 50 % 2/4 4.0 images/s accuracy 0.5 left 0:04\r"));
}

TEST(ProgressCallback, ShowsTheEpochOfARunOfOneEpoch) {
  PretendTrainer trainer;
  const std::string text = drawn({.model = "m", .batch_size = 32, .examples_per_epoch = 64}, 2, trainer);
  EXPECT_THAT(text, HasSubstr("m epoch 1/1 50 % 1/2\r"));
}

}  // namespace
}  // namespace trainyard::train::progress_callback_test
