#include "trainyard/train/step/step_capture.h"

#include <gtest/gtest.h>

namespace trainyard::train::step_capture_test {
namespace {

using Action = StepCapture::Action;
const std::vector<int64_t> kFull = {256, 3, 224, 224}, kRest = {17, 3, 224, 224};

void warm_up(StepCapture& capture) {
  for (int step = 0; step < StepCapture::kWarmupSteps; ++step) ASSERT_EQ(capture.next(kFull, false), Action::kRun);
}

TEST(StepCapture, RecordsAfterTheWarmUpAndReplaysFromThenOn) {
  StepCapture capture;
  warm_up(capture);
  EXPECT_EQ(capture.next(kFull, false), Action::kRecord);
  capture.recorded();
  for (int step = 0; step < 3; ++step) EXPECT_EQ(capture.next(kFull, false), Action::kReplay);
}

TEST(StepCapture, RunsOtherShapesAndObservedStepsAsTheyAre) {
  StepCapture capture;
  warm_up(capture);
  EXPECT_EQ(capture.next(kFull, true), Action::kRun);
  EXPECT_EQ(capture.next(kFull, false), Action::kRecord);
  capture.recorded();
  EXPECT_EQ(capture.next(kRest, false), Action::kRun);
  EXPECT_EQ(capture.next(kFull, true), Action::kRun);
  EXPECT_EQ(capture.next(kFull, false), Action::kReplay);
}

TEST(StepCapture, AnotherShapeBeforeTheRecordingStartsTheWarmUpAnew) {
  StepCapture capture;
  EXPECT_EQ(capture.next(kRest, false), Action::kRun);
  warm_up(capture);
  EXPECT_EQ(capture.next(kFull, false), Action::kRecord);
}

TEST(StepCapture, GivesUpForGood) {
  StepCapture capture;
  warm_up(capture);
  ASSERT_EQ(capture.next(kFull, false), Action::kRecord);
  capture.give_up("an operation waits for the device");
  for (int step = 0; step < 10; ++step) EXPECT_EQ(capture.next(kFull, false), Action::kRun);
  StepCapture never("micro-steps");
  for (int step = 0; step < 10; ++step) EXPECT_EQ(never.next(kFull, false), Action::kRun);
}

}  // namespace
}  // namespace trainyard::train::step_capture_test
