#include "trainyard/frontends/tf_cnn/output/evaluation_lines.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/golden.h"
#include "trainyard/train/testing/callback_conformance.h"

namespace trainyard::frontends::evaluation_lines_test {
namespace {

// A training of which every tenth step is evaluated; the accuracy grows by a tenth each time.
class EvaluationLinesRun : public ::testing::Test {
 protected:
  EvaluationLinesRun() {
    options_.evaluate = [this] {
      const double top_1 = static_cast<double>(trainer_.global_step()) / 100;
      return train::Evaluation{.loss = 0.5, .top_1 = top_1, .top_5 = 1, .samples = 1000, .seconds = 4};
    };
    options_.due = [](int64_t done) { return done % 10 == 0; };
    options_.listener =
        std::make_shared<EvaluationLines>([this](std::string_view lines) { text_ += std::string(lines) + "\n"; });
  }
  void run(int64_t steps) {
    train::run_callback(trainer_, std::make_shared<train::EvaluationCallback>(options_), {.steps_per_epoch = steps});
  }

  std::string text_;
  train::PretendTrainer trainer_;
  train::EvaluationCallbackOptions options_;
};

TEST_F(EvaluationLinesRun, PrintsWhatTfCnnBenchmarksPrints) {
  run(30);
  EXPECT_TRUE(core::matches_golden(text_, "trainyard/frontends/testdata/evaluation_during_training.txt"));
}

TEST_F(EvaluationLinesRun, SaysThatTheGoalIsReached) {
  options_.goal = stop_at_top_1_accuracy(0.2);
  run(100);
  EXPECT_EQ(trainer_.global_step(), 20);
  EXPECT_THAT(text_, ::testing::HasSubstr("Stopping, as eval accuracy at least 0.2 was reached\nDone with training\n"));
  EXPECT_EQ(text_.find("final"), std::string::npos);
  EXPECT_THAT(trainer_.stop_reason(), ::testing::HasSubstr("at least 0.2"));
}

// tf_cnn_benchmarks has the mean average precision of ssd300 in the place of the accuracy.
TEST(ResultLine, ShowsTheAveragePrecisionOfADetector) {
  train::Evaluation evaluation{.has_accuracies = false, .has_loss = false, .samples = 4952};
  EXPECT_EQ(result_line(evaluation), "") << "its numbers come later";
  EXPECT_FALSE(compared_accuracy(evaluation).has_value());
  EXPECT_TRUE(main_numbers(evaluation).empty());
  evaluation.more = {{"COCO/AP", 0.25}, {"COCO/AP50", 0.5}, {"COCO/AP75", 0.125}};
  EXPECT_EQ(result_line(evaluation), "Accuracy @ 1 = 0.2500 Accuracy @ 5 = 0.0000 [4952 examples]");
  EXPECT_EQ(compared_accuracy(evaluation), 0.25);
  EXPECT_EQ(main_numbers(evaluation),
            (std::vector<std::pair<std::string, double>>{{"COCO/AP", 0.25}, {"COCO/AP50", 0.5}}));
  EXPECT_FALSE(stop_at_top_1_accuracy(0.26)(evaluation));
  EXPECT_TRUE(stop_at_top_1_accuracy(0.25)(evaluation));
}

TEST(ResultLine, ShowsTheMeanOfSeveralLabels) {
  using Numbers = std::vector<std::pair<std::string, double>>;
  train::Evaluation evaluation{.loss = 0.5, .has_accuracies = false, .samples = 1000};
  evaluation.more = {{"mean_average_precision", 0.8123}};
  EXPECT_EQ(result_line(evaluation), "Mean average precision = 0.8123 [1000 examples]");
  EXPECT_EQ(main_numbers(evaluation), (Numbers{{"mean_average_precision", 0.8123}}));
  EXPECT_FALSE(compared_accuracy(evaluation).has_value());
}

TEST(ResultLine, LeavesOutTheTopFiveOfFewClasses) {
  using Numbers = std::vector<std::pair<std::string, double>>;
  train::Evaluation evaluation{.top_1 = 0.75, .top_5 = 1, .shows_top_5 = false, .samples = 40};
  evaluation.more = {{"tta_top_1_accuracy", 0.8}};
  EXPECT_EQ(result_line(evaluation), "Accuracy @ 1 = 0.7500 [40 examples]");
  EXPECT_EQ(main_numbers(evaluation), (Numbers{{"top_1_accuracy", 0.75}, {"tta_top_1_accuracy", 0.8}}));
  evaluation.shows_top_5 = true;
  EXPECT_EQ(main_numbers(evaluation),
            (Numbers{{"top_1_accuracy", 0.75}, {"top_5_accuracy", 1}, {"tta_top_1_accuracy", 0.8}}));
}

TEST(StopAtTop1Accuracy, IsAPartOfOne) {
  EXPECT_EQ(core::message_of([] { stop_at_top_1_accuracy(75); }),
            "accuracy to stop at is out of range: expected 0 .. 1, got 75");
  EXPECT_TRUE(stop_at_top_1_accuracy(1)({.top_1 = 1}));
  EXPECT_THROW(stop_at_top_1_accuracy(75), core::Error);
  EXPECT_THROW(stop_at_top_1_accuracy(-0.5), core::Error);
  EXPECT_TRUE(stop_at_top_1_accuracy(0)({.top_1 = 0}));
}

}  // namespace
}  // namespace trainyard::frontends::evaluation_lines_test
