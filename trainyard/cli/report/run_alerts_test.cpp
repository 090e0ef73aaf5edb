#include "trainyard/cli/report/run_alerts.h"

#include <gtest/gtest.h>

#include "trainyard/cli/testing/run_folder.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::run_alerts_test {
namespace {

constexpr double kNow = 1.7e9 + 200;

class Alerts : public ::testing::Test {
 protected:
  // The kinds that are found in a run of these rows.
  std::string kinds(const std::string& rows, double now = kNow) {
    core::local_file_system().write_file_atomically(temp_.file("metrics.jsonl"), rows);
    ReportRun run{.summary = summary_, .metrics = read_run_metrics(temp_.file("metrics.jsonl"))};
    std::string kinds;
    for (const RunAlert& alert : find_alerts(run, now)) kinds += (kinds.empty() ? "" : " ") + alert.kind;
    return kinds;
  }
  // Rows of a training that learns, at these speeds in its four quarters.
  static std::string rows(const std::vector<double>& speeds = {250, 250, 250, 250}) {
    std::string text;
    for (int64_t step = 1; step <= 80; ++step) {
      text += train_row(step, 3.0 / static_cast<double>(step),
                        speeds[static_cast<size_t>(std::min<int64_t>(3, (step - 1) / 20))]);
    }
    return text;
  }
  static std::string evaluations(const std::vector<double>& losses, const std::vector<double>& accuracies) {
    std::string text;
    for (size_t i = 0; i < losses.size(); ++i) {
      text +=
          metric_row(static_cast<int64_t>(10 * i), "eval", {{"loss", losses[i]}, {"top_1_accuracy", accuracies[i]}});
    }
    return text;
  }

  core::TempDir temp_;
  nlohmann::ordered_json summary_ = run_summary_of("resnet20");
};

TEST_F(Alerts, AHealthyRunHasNone) {
  EXPECT_EQ(kinds(rows() + evaluations({2, 1.5, 1.2, 1.25}, {0.3, 0.5, 0.61, 0.6})), "");
}

TEST_F(Alerts, NameHowARunEnded) {
  summary_["status"] = "failed";
  summary_["error"] = "the disk is full";
  EXPECT_EQ(kinds(rows()), "failed");
  summary_["status"] = "stopped";
  summary_["stopped_by"] = "SIGTERM";
  EXPECT_EQ(kinds(rows()), "stopped");
}

TEST_F(Alerts, ARunningRunMustWrite) {
  summary_["status"] = "running";
  EXPECT_EQ(kinds(rows(), 1.7e9 + 80 + 599), "");
  EXPECT_EQ(kinds(rows(), 1.7e9 + 80 + 601), "silent");
  summary_["status"] = "finished";
  EXPECT_EQ(kinds(rows(), 1.9e9), "");
}

TEST_F(Alerts, NonFiniteStepsAreNamed) {
  summary_["skipped_steps"] = 3;
  EXPECT_EQ(kinds(rows()), "nan");
  summary_["skipped_steps"] = 0;
  EXPECT_EQ(kinds(rows() + metric_row(90, "train", {{"total_loss", "nan"}})), "nan");
}

TEST_F(Alerts, ALossThatDoesNotFallIsNamed) {
  std::string flat;
  for (int64_t step = 1; step <= 40; ++step) flat += train_row(step, 2 + 0.001 * static_cast<double>(step));
  EXPECT_EQ(kinds(flat), "no_progress");
}

TEST_F(Alerts, OverfittingIsByAccuracyOrLoss) {
  EXPECT_EQ(kinds(rows() + evaluations({1, 1, 1}, {0.5, 0.6, 0.57})), "overfitting");
  EXPECT_EQ(kinds(rows() + evaluations({1, 1, 1}, {0.5, 0.6, 0.59})), "");
  EXPECT_EQ(kinds(rows() + evaluations({1.2, 1, 1.11}, {0.5, 0.6, 0.6})), "overfitting");
  EXPECT_EQ(kinds(rows() + evaluations({1.2, 1, 1.09}, {0.5, 0.6, 0.6})), "");
  EXPECT_EQ(kinds(rows() + evaluations({1, 1.5}, {0.6, 0.4})), "") << "two evaluations tell little";
}

TEST_F(Alerts, WaitingForInputIsNamed) {
  summary_["time_shares"]["input"] = 0.16;
  EXPECT_EQ(kinds(rows()), "input");
  summary_["time_shares"]["input"] = 0.14;
  EXPECT_EQ(kinds(rows()), "");
  summary_["time_shares"]["input"] = "much";
  EXPECT_EQ(kinds(rows()), "");
}

TEST_F(Alerts, ASlowRankIsNamed) {
  const auto ranks = [](double waiting_of_others) {
    return nlohmann::ordered_json{
        {"slowest", 1},
        {"seconds", {{{"seconds", 10}, {"waiting", waiting_of_others}}, {{"seconds", 10}, {"waiting", 0.2}}}}};
  };
  summary_["ranks"] = ranks(1.3);
  EXPECT_EQ(kinds(rows()), "slow_rank");
  summary_["ranks"] = ranks(1.1);
  EXPECT_EQ(kinds(rows()), "");
  summary_["ranks"]["slowest"] = 7;
  EXPECT_EQ(kinds(rows()), "") << "a rank that is not there";
}

TEST_F(Alerts, SpeedThatFellIsNamed) {
  EXPECT_EQ(kinds(rows({250, 250, 250, 190})), "slower");
  EXPECT_EQ(kinds(rows({250, 250, 250, 210})), "");
  EXPECT_EQ(kinds(rows({100, 250, 250, 250})), "") << "it rose";
}

TEST_F(Alerts, BadImagesAreNamed) {
  summary_["bad_samples"] = 4;
  EXPECT_EQ(kinds(rows()), "bad_samples");
}

}  // namespace
}  // namespace trainyard::cli::run_alerts_test
