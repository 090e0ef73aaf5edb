// The command `trainyard report`.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/run_folder.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::report_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ReportCommand : public ::testing::Test {
 protected:
  ReportCommand() {
    for (const char* name : {"runs/a", "runs/b"}) write_run_folder(temp_.file(name), run_summary_of("resnet20"), 20);
    files_.make_directories(temp_.file("runs/empty"));
  }
  std::string page(const std::string& name) { return files_.read_file(temp_.file(name)); }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(ReportCommand, WritesOnePageIntoTheRunsFolder) {
  const CommandResult result = run_command({"report", temp_.file("runs/a")});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, StartsWith("Report: " + temp_.file("runs/a/report.html") + " (1 run, "));
  EXPECT_THAT(page("runs/a/report.html"), StartsWith("<!doctype html>"));
}

TEST_F(ReportCommand, AFolderOfRunsIsAllOfThemAndNoneTwice) {
  const std::string output = temp_.file("all.html");
  const CommandResult result = run_command({"report", temp_.file("runs"), temp_.file("runs/a"), "--output=" + output});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, StartsWith("Report: " + output + " (2 runs, "));
  EXPECT_THAT(page("all.html"), HasSubstr("\"path\":\"" + temp_.file("runs/b") + "\""));
}

TEST_F(ReportCommand, RefusesWhatIsNoRun) {
  for (const auto& [arguments, message] : std::initializer_list<std::pair<Arguments, const char*>>{
           {{"report"}, "trainyard report needs the folder of a run"},
           {{"report", temp_.file("runs/empty")}, "no run is in this folder"},
           {{"report", temp_.file("none")}, "no run is in this folder"},
           {{"report", temp_.file("runs/a"), "--output=" + temp_.path()}, "--output is a folder"},
           {{"report", temp_.file("runs/a"), "--interval=5"}, "--interval is for --watch"},
           {{"report", temp_.file("runs/a"), "--watch", "--interval=0"}, "interval"}}) {
    const CommandResult result = run_command(arguments);
    EXPECT_NE(result.code, kSuccess);
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

// While a run goes on the page loads itself again, and is written again when a file has changed; it ends with the run.
TEST_F(ReportCommand, WatchesUntilTheRunEnds) {
  nlohmann::ordered_json summary = run_summary_of("resnet20");
  summary["status"] = "running";
  const std::string directory = temp_.file("runs/a");
  write_run_folder(directory, summary, 20);
  CommandResult result;
  std::thread watching([&] { result = run_command({"report", directory, "--watch", "--interval=1"}); });
  while (!files_.exists(core::join_path(directory, "report.html"))) std::this_thread::yield();
  EXPECT_THAT(page("runs/a/report.html"), HasSubstr("\"reload_seconds\":1"));
  write_run_folder(directory, run_summary_of("resnet50"), 30);
  watching.join();
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(page("runs/a/report.html"), HasSubstr("\"model\":\"resnet50\""));
  EXPECT_THAT(page("runs/a/report.html"), HasSubstr("\"reload_seconds\":null"));
}

TEST_F(ReportCommand, AStopEndsTheWatch) {
  nlohmann::ordered_json summary = run_summary_of("resnet20");
  summary["status"] = "running";
  write_run_folder(temp_.file("runs/a"), summary, 20);
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGINT");
  EXPECT_EQ(run_command({"report", temp_.file("runs/a"), "--watch"}, stop.token()).code, kSuccess);
}

}  // namespace
}  // namespace trainyard::cli::report_test
