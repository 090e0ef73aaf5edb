#include "trainyard/train/session/validation_record.h"

#include <limits>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"

namespace trainyard::train::validation_record_test {
namespace {

using ::testing::HasSubstr;

ValidationRecord record_by(BestMetric metric) {
  return {best_by(metric), EarlyStop{.patience = 2}};
}

TEST(ValidationRecord, ContinuesWhereItWasSaved) {
  ValidationRecord first = record_by(BestMetric::kLoss), second = record_by(BestMetric::kLoss);
  first.add({.loss = 0.5}, 10);
  first.add({.loss = 0.75}, 20);
  EXPECT_EQ(first.stop_reason(), std::nullopt);
  core::MemoryState saved;
  first.save(saved);
  second.load(saved);
  ASSERT_TRUE(second.best());
  EXPECT_EQ(second.best()->value, 0.5);
  EXPECT_EQ(second.best()->global_step, 10);
  second.add({.loss = 0.625}, 30);
  EXPECT_EQ(second.stop_reason(), "loss has not been better than 0.5, of step 10, in 2 evaluations");
  second.add({.loss = 0.25}, 40);
  EXPECT_EQ(second.stop_reason(), std::nullopt) << "a better one is the first again";
}

// The best evaluation and the one that patience counts from differ, and both continue.
TEST(ValidationRecord, ContinuesBehindAnImprovementThatDoesNotCount) {
  const EarlyStop early{.patience = 3, .min_delta = 0.25};
  ValidationRecord first(best_by(BestMetric::kLoss), early), second(best_by(BestMetric::kLoss), early);
  first.add({.loss = 1}, 10);
  first.add({.loss = 0.875}, 20);
  EXPECT_EQ(first.best()->global_step, 20);
  core::MemoryState saved;
  first.save(saved);
  second.load(saved);
  EXPECT_EQ(second.best()->value, 0.875);
  EXPECT_EQ(second.best()->global_step, 20);
  second.add({.loss = 0.8125}, 30);
  EXPECT_EQ(second.stop_reason(), std::nullopt);
  second.add({.loss = 0.75}, 40);
  EXPECT_EQ(second.best()->global_step, 40);
  EXPECT_EQ(second.stop_reason(), "loss has not been better by more than 0.25 than 1, of step 10, in 3 evaluations");
}

TEST(ValidationRecord, OfAnotherMetricStartsAgain) {
  ValidationRecord loss = record_by(BestMetric::kLoss), accuracy = record_by(BestMetric::kTop1);
  for (const int64_t step : {10, 20, 30}) loss.add({.loss = 0.5}, step);
  accuracy.add({.top_1 = 0.875}, 5);
  core::MemoryState saved;
  loss.save(saved);
  ::testing::internal::CaptureStderr();
  accuracy.load(saved);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("compared by loss so far: the next one is the first by top_1_accuracy"));
  EXPECT_FALSE(accuracy.best());
  EXPECT_EQ(accuracy.stop_reason(), std::nullopt);
  accuracy.add({.top_1 = 0.125}, 40);
  EXPECT_EQ(accuracy.best()->global_step, 40);
}

TEST(ValidationRecord, EvaluationsThatAreNotFiniteEndTheTrainingToo) {
  ValidationRecord first = record_by(BestMetric::kLoss), second = record_by(BestMetric::kLoss);
  first.add({.loss = std::numeric_limits<double>::quiet_NaN()}, 10);
  core::MemoryState saved;
  first.save(saved);
  second.load(saved);
  EXPECT_FALSE(second.best());
  EXPECT_EQ(second.stop_reason(), std::nullopt);
  second.add({.loss = -std::numeric_limits<double>::infinity()}, 20);
  EXPECT_EQ(second.stop_reason(), "no evaluation of 2 gave a finite loss");
}

}  // namespace
}  // namespace trainyard::train::validation_record_test
