#include "trainyard/frontends/tf_cnn/output/step_lines.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/testing/golden.h"

namespace trainyard::frontends::step_lines_test {
namespace {

// By definition, in another way than the source: sorted copies, moments, powers.
double reference_median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * values[n / 2 - 1] + 0.5 * values[n / 2];
}

SpeedStatistics reference(double batch, const std::vector<double>& seconds, double alpha) {
  const auto n = static_cast<double>(seconds.size());
  double weighted = 0, weights = 0, sum = 0, squares = 0;
  std::vector<double> speeds, deviations;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const double weight = alpha == 0 ? 1 : std::pow(1 - alpha, n - 1 - static_cast<double>(i));
    weighted += weight * seconds[i];
    weights += weight;
    speeds.push_back(batch / seconds[i]);
    sum += speeds.back();
    squares += speeds.back() * speeds.back();
  }
  for (const double speed : speeds) deviations.push_back(std::abs(speed - reference_median(speeds)));
  return {batch / (weighted / weights), std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)) / n),
          1.4826 * reference_median(deviations)};
}

TEST(SpeedStatistics, FollowTheirDefinitions) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> times(0.05, 0.4);
  for (const size_t count : {1, 2, 3, 4, 9, 10, 101}) {
    std::vector<double> seconds(count);
    for (double& time : seconds) time = times(random);
    for (const double alpha : {0.0, 0.1, 0.5, 1.0}) {
      const SpeedStatistics expected = reference(64, seconds, alpha);
      const SpeedStatistics actual = speed_statistics(64, seconds, alpha);
      EXPECT_NEAR(actual.mean, expected.mean, 1e-9) << count << " steps, weight " << alpha;
      EXPECT_NEAR(actual.uncertainty, expected.uncertainty, 1e-5);
      EXPECT_NEAR(actual.jitter, expected.jitter, 1e-9);
    }
    EXPECT_EQ(speed_statistics(64, seconds).mean, speed_statistics(64, seconds, 0.0).mean);
  }
}

// Worked by hand: speeds 10, 20, 40; mean time (0.1 + 0.05 + 0.025) / 3.
TEST(SpeedStatistics, OfThreeSteps) {
  const std::vector<double> seconds{0.1, 0.05, 0.025};
  const SpeedStatistics statistics = speed_statistics(1, seconds);
  EXPECT_NEAR(statistics.mean, 17.142857142857142, 1e-12);
  EXPECT_NEAR(statistics.uncertainty, std::sqrt(1400.0 / 9) / std::sqrt(3.0), 1e-12);
  EXPECT_NEAR(statistics.jitter, 14.826, 1e-12);
  // The newest counts most: (0.025 + 0.05 / 2 + 0.1 / 4) / 1.75.
  EXPECT_NEAR(speed_statistics(1, seconds, 0.5).mean, 1.75 / 0.075, 1e-12);
  EXPECT_NEAR(speed_statistics(1, seconds, 1.0).mean, 40, 1e-12);
}

TEST(StepLines, AreThoseOfUpstream) {
  const SpeedStatistics first{14.21, 0, 0}, later{1234.56, 7.89, 0.04};
  std::string text = step_header("total_loss", false) + "\n" + step_line(1, first, 7.0204) + "\n" +
                     step_line(100, later, 0.0005) + "\n" + step_line(110, later, std::nan("")) + "\n" +
                     total_lines(1234.556) + "\n";
  text += step_header("base/loss", true) + "\n" + step_line(1, first, 7.02, train::Accuracies{0.5, 1}) + "\n" +
          total_lines(0) + "\n";
  text += evaluation_step_line(10, 99.96) + "\n" + evaluation_line({0.75, 0.96666}, 50000) + "\n";
  EXPECT_TRUE(core::matches_golden(text, "trainyard/frontends/testdata/step_lines.txt"));
}

TEST(StepLines, LeaveOutTheTopFiveWhereItMeansNothing) {
  const train::Accuracies one{.top_1 = 0.5, .top_5 = 1, .shows_top_5 = false};
  EXPECT_EQ(step_header("total_loss", true, false), "Step\tImg/sec\ttotal_loss\ttop_1_accuracy");
  EXPECT_EQ(step_header("total_loss", false, true), "Step\tImg/sec\ttotal_loss");
  EXPECT_EQ(step_line(3, {12.34, 1.3, 0.7}, 0.25, one), "3\timages/sec: 12.3 +/- 1.3 (jitter = 0.7)\t0.250\t0.500");
  EXPECT_EQ(evaluation_line(one, 7), "Accuracy @ 1 = 0.5000 [7 examples]");
}

TEST(StepLines, WriteNumbersAsPython) {
  EXPECT_EQ(python_number(-3), "-3.0");
  EXPECT_EQ(python_number(1e20), "1e+20");
  EXPECT_EQ(python_number(0.5), "0.5");
  EXPECT_EQ(python_number(1), "1.0");
  EXPECT_EQ(python_number(0.759), "0.759");
  EXPECT_EQ(python_number(0.00001), "1e-05");
}

}  // namespace
}  // namespace trainyard::frontends::step_lines_test
