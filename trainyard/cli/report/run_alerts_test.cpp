#include "trainyard/cli/report/run_alerts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/run_folder.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::run_alerts_test {
namespace {

using ::testing::ElementsAre;

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
  // The level and the text of each.
  std::vector<std::string> texts(const std::string& rows, double now = kNow) {
    core::local_file_system().write_file_atomically(temp_.file("metrics.jsonl"), rows);
    const ReportRun run{.summary = summary_, .metrics = read_run_metrics(temp_.file("metrics.jsonl"))};
    std::vector<std::string> texts;
    for (const RunAlert& alert : find_alerts(run, now)) texts.push_back(alert.level + ": " + alert.text);
    return texts;
  }
  std::vector<std::string> advice() const {
    std::vector<std::string> all;
    for (const RunAlert& alert : find_alerts(ReportRun{.summary = summary_}, kNow)) all.push_back(alert.advice);
    return all;
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

TEST_F(Alerts, WhatTheSummaryDoesNotSayIsNoAlert) {
  summary_ = nlohmann::ordered_json::object();
  EXPECT_EQ(kinds(rows()), "");
  // A rank that does not say how long it has waited has not waited.
  summary_["ranks"] =
      nlohmann::ordered_json::parse(R"({"slowest": 1, "seconds": [{"seconds": 2}, {"seconds": 50, "waiting": 0}]})");
  EXPECT_EQ(kinds(rows()), "");
  summary_["ranks"]["seconds"][0]["waiting"] = 1;
  EXPECT_EQ(kinds(rows()), "slow_rank");
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

TEST_F(Alerts, SayHowTheRunEnded) {
  summary_["status"] = "failed";
  EXPECT_THAT(texts(rows()), ElementsAre("error: The run failed: it does not say why"));
  summary_["error"] = "the disk is full";
  EXPECT_THAT(texts(rows()), ElementsAre("error: The run failed: the disk is full"));
  summary_["status"] = "stopped";
  summary_["stopped_by"] = "SIGTERM";
  EXPECT_THAT(texts(rows()), ElementsAre("note: The run was ended early by SIGTERM."));
  EXPECT_THAT(advice(), ElementsAre("The same command continues it."));
  summary_["stopped_by"] = "loss has not been better than 1.5, of step 10, in 3 evaluations";
  EXPECT_THAT(
      texts(rows()),
      ElementsAre("note: The run ended early: loss has not been better than 1.5, of step 10, in 3 evaluations."));
  EXPECT_THAT(advice(), ElementsAre("")) << "the same command ends at once";
  summary_["status"] = "running";
  summary_.erase("stopped_by");
  EXPECT_THAT(texts(rows(), 1.7e9 + 80 + 720),
              ElementsAre("warning: The run says that it is running, but has written nothing for 12 minutes."));
}

TEST_F(Alerts, SayWhichStepsWereLost) {
  summary_["skipped_steps"] = 3;
  EXPECT_THAT(texts(rows()),
              ElementsAre("warning: 3 steps were skipped: their loss or a gradient was NaN or infinite."));
  summary_["skipped_steps"] = 0;
  EXPECT_THAT(texts(rows() + metric_row(90, "train", {{"total_loss", "nan"}}) +
                    metric_row(95, "train", {{"total_loss", "inf"}})),
              ElementsAre("error: The loss was NaN or infinite in 2 recorded steps, first in step 90."));
  summary_["bad_samples"] = 4;
  EXPECT_THAT(texts(rows()), ElementsAre("note: 4 training images could not be read and were left out."));
}

TEST_F(Alerts, SayWhatTheLossesWere) {
  std::string flat;
  for (int64_t step = 1; step <= 40; ++step) flat += train_row(step, 2 + 0.01 * static_cast<double>(step));
  // The third of four values is their median: of steps 1 to 4, and of 37 to 40.
  EXPECT_THAT(texts(flat), ElementsAre("warning: The loss did not fall: about 2.03 at the begin, 2.39 at the end."));
  EXPECT_THAT(texts(rows() + evaluations({1, 1, 1}, {0.5, 0.6, 0.57})),
              ElementsAre("warning: Validation accuracy was best at step 10 (60.00 %) and is 57.00 % at step 20."));
  EXPECT_THAT(texts(rows() + evaluations({1.2, 0.9, 1.5}, {0.5, 0.6, 0.6})),
              ElementsAre("warning: Validation loss was least at step 10 (0.9) and is 1.5 at step 20."));
}

TEST_F(Alerts, SayWhatCostTime) {
  EXPECT_THAT(texts(rows({250, 250, 250, 190})),
              ElementsAre("warning: Speed fell: 250 images/s at best, 190 in the last quarter of the run."));
  summary_["time_shares"]["input"] = 0.16;
  EXPECT_THAT(texts(rows()), ElementsAre("warning: 16 % of the time was spent waiting for input."));
  summary_["time_shares"]["input"] = 0.02;
  summary_["ranks"] = {
      {"slowest", 1},
      {"seconds",
       {{{"seconds", 10}, {"waiting", 2}}, {{"seconds", 5}, {"waiting", 0.2}}, {{"seconds", 30}, {"waiting", 4}}}}};
  EXPECT_THAT(texts(rows()), ElementsAre("warning: Rank 1 is slow: the others waited for 15 % of their time, it waited "
                                         "for 4 %."));
}

TEST_F(Alerts, BadImagesAreNamed) {
  summary_["bad_samples"] = 4;
  EXPECT_EQ(kinds(rows()), "bad_samples");
}

}  // namespace
}  // namespace trainyard::cli::run_alerts_test
