#include "trainyard/train/session/run_report.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::train::run_report_test {
namespace {

using ::testing::HasSubstr, ::testing::StartsWith;

class RunReportTest : public ::testing::Test {
 protected:
  RunReportTest() {
    files_.make_directories(directory_.file("data"));
    files_.write_file_atomically(directory_.file("data/a.txt"), "five!");
  }
  RunReportOptions options() {
    return {.path = directory_.file("run_summary.json"),
            .record = {.command = "trainyard train"},
            .model = "lenet",
            .dataset = "shapes",
            .mode = "training",
            .data_dir = directory_.file("data")};
  }
  nlohmann::json written() { return nlohmann::json::parse(files_.read_file(directory_.file("run_summary.json"))); }

  core::TempDir directory_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(RunReportTest, TellsWhatRunsAndHowItEnded) {
  for (const std::string reason : {"", "SIGTERM"}) {
    RunReport report(options());
    EXPECT_EQ(report.path(), directory_.file("run_summary.json"));
    report.begin(7);
    nlohmann::json json = written();
    EXPECT_EQ(json["status"], "running");
    EXPECT_EQ(json["command"], "trainyard train");
    EXPECT_EQ(json["model"], "lenet");
    EXPECT_EQ(json["dataset"], "shapes");
    EXPECT_EQ(json["mode"], "training");
    EXPECT_EQ(json["global_step"], 7);
    EXPECT_TRUE(json["ended"].is_null());
    EXPECT_TRUE(json["peak_memory_bytes"].is_null()) << "it is not the whole run's";
    RunSummary summary;
    summary.global_step = 9;
    summary.stopped_by = reason;
    report.end(summary);
    json = written();
    EXPECT_EQ(json["status"], reason.empty() ? "finished" : "stopped");
    EXPECT_EQ(json["global_step"], 9);
    EXPECT_EQ(json["mode"], "training");
    EXPECT_TRUE(json["ended"].is_string());
    EXPECT_GT(json["peak_memory_bytes"], 0);
    EXPECT_THAT(json["data"]["files"].get<std::string>(), StartsWith("1 files, 5 bytes, "));
    EXPECT_EQ(summary.model, "lenet");
  }
}

TEST_F(RunReportTest, TellsTheErrorOfARunThatFailed) {
  RunReport report(options());
  report.begin(0);
  report.fail(core::Error(core::ErrorCode::kIo, "the disk is gone"), 4);
  const nlohmann::json json = written();
  EXPECT_EQ(json["status"], "failed");
  EXPECT_EQ(json["error"], "the disk is gone");
  EXPECT_EQ(json["global_step"], 4);
  EXPECT_TRUE(json["ended"].is_string());
  EXPECT_EQ(json["model"], "lenet");
}

TEST_F(RunReportTest, DataThatCannotBeReadAreNotKnown) {
  RunReportOptions without = options();
  without.data_dir = directory_.file("none");
  RunReport report(without);
  RunSummary summary;
  report.end(summary);
  EXPECT_THAT(written()["data"]["files"].get<std::string>(), StartsWith("not known: "));
}

// The run's own error is what the caller must hear of.
TEST_F(RunReportTest, AnEndThatCannotBeWrittenIsAWarning) {
  RunReportOptions elsewhere = options();
  elsewhere.path = directory_.file("data/a.txt/run_summary.json");
  RunReport report(elsewhere);
  ::testing::internal::CaptureStderr();
  EXPECT_NO_THROW(report.fail(core::Error(core::ErrorCode::kIo, "the disk is gone"), 4));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the end of the run is not in its summary: "));
  EXPECT_THROW(report.begin(0), core::Error);
}

}  // namespace
}  // namespace trainyard::train::run_report_test
