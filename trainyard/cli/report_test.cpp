// The command `trainyard report`.
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/run_folder.h"
#include "trainyard/core/files/lock_file.h"
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

// `trainyard report runs/a --output=/dev/stdout > a.html`
TEST_F(ReportCommand, APageOnTheStandardOutputHasItForItself) {
  for (const char* output : {"/dev/stdout", "/dev/fd/1"}) {
    ::testing::internal::CaptureStdout();
    const CommandResult result = run_command({"report", temp_.file("runs/a"), std::string("--output=") + output});
    EXPECT_THAT(::testing::internal::GetCapturedStdout(), StartsWith("<!doctype html>"));
    EXPECT_EQ(result.code, kSuccess) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(std::string("Report: ") + output + " (1 run, "));
  }
}

TEST_F(ReportCommand, AFolderOfRunsIsAllOfThemAndNoneTwice) {
  const std::string output = temp_.file("all.html");
  const CommandResult result = run_command({"report", temp_.file("runs"), temp_.file("runs/a"), "--output=" + output});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, StartsWith("Report: " + output + " (2 runs, "));
  EXPECT_THAT(page("all.html"), HasSubstr("\"path\":\"" + temp_.file("runs/b") + "\""));
  const CommandResult again = run_command(
      {"report", temp_.file("runs"), temp_.file("runs/a/"), temp_.file("runs/empty/../b"), "--output=" + output});
  EXPECT_THAT(again.out, StartsWith("Report: " + output + " (2 runs, ")) << "however they are written";
}

TEST_F(ReportCommand, TheFolderOfNoNameHasItsOwn) {
  const std::string output = temp_.file("page.html");
  ASSERT_EQ(run_command({"report", temp_.file("runs/a/."), "--output=" + output}).code, kSuccess);
  EXPECT_THAT(page("page.html"), HasSubstr("\"name\":\"a\""));
  EXPECT_THAT(page("page.html"), HasSubstr("/runs/a-again"));
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

// A search: its trials' runs, and the record that describes them.
class ReportOfSearch : public ReportCommand {
 protected:
  ReportOfSearch() {
    for (const char* trial : {"trial-000", "trial-001"}) {
      write_run_folder(core::join_path(search_, trial), run_summary_of("resnet20"), 20);
    }
    write("tune.json", search_record_of().dump());
  }
  void write(const char* name, const std::string& text) {
    files_.write_file_atomically(core::join_path(search_, name), text);
  }
  // Returns the data of a page.
  nlohmann::ordered_json data(const std::string& path) {
    const std::string text = files_.read_file(path), begin = "application/json\">";
    const size_t at = text.find(begin) + begin.size();
    return nlohmann::ordered_json::parse(text.substr(at, text.find("</script>", at) - at));
  }

  const std::string search_ = temp_.file("my search");
};

TEST_F(ReportOfSearch, ItsFolderIsOnePageWithItsTrials) {
  const CommandResult result = run_command({"report", search_ + "/"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, StartsWith("Report: " + search_ + "/report.html (2 runs, "));
  const nlohmann::ordered_json page = data(search_ + "/report.html"), shown = page["searches"][0];
  ASSERT_EQ(page["searches"].size(), 1U) << "that of its runs is the same";
  EXPECT_EQ(shown["name"], "my search");
  EXPECT_EQ(shown["metric"], "loss");
  EXPECT_EQ(page["runs"][0]["name"], "trial-000");
  EXPECT_EQ(shown["trials"][0]["run"], 0);
  EXPECT_EQ(shown["trials"][1]["run"], 1);
  EXPECT_EQ(shown["trials"][2]["run"], nullptr) << "it has no folder";
}

TEST_F(ReportOfSearch, ARunOfItBringsTheSearch) {
  const std::string output = temp_.file("page.html");
  ASSERT_EQ(run_command({"report", temp_.file("runs/a"), search_ + "/trial-001/", "--output=" + output}).code,
            kSuccess);
  const nlohmann::ordered_json page = data(output), shown = page["searches"][0];
  EXPECT_EQ(page["runs"].size(), 2U);
  EXPECT_EQ(shown["trials"].size(), 4U);
  EXPECT_EQ(shown["trials"][0]["run"], nullptr);
  EXPECT_EQ(shown["trials"][1]["run"], 1);
  ASSERT_EQ(run_command({"report", temp_.file("runs/a"), "--output=" + output}).code, kSuccess);
  EXPECT_EQ(data(output)["searches"], nlohmann::ordered_json::array());
}

TEST_F(ReportOfSearch, OneWithoutARunAndADamagedRecordMakeAPage) {
  files_.make_directories(temp_.file("new"));
  files_.write_file_atomically(temp_.file("new/tune.json"), search_record_of().dump());
  EXPECT_EQ(run_command({"report", temp_.file("new")}).code, kSuccess);
  EXPECT_EQ(data(temp_.file("new/report.html"))["searches"][0]["trials"].size(), 4U);
  write("tune.json", "{\"kind\":");
  EXPECT_EQ(run_command({"report", search_}).code, kSuccess);
  EXPECT_EQ(data(search_ + "/report.html")["searches"][0]["problems"][0], "tune.json: it is no record of a search");
}

// No run is running between two trials; the search's lock says that more come.
TEST_F(ReportOfSearch, IsWatchedUntilItEnds) {
  std::optional<core::LockFile> lock(std::in_place, search_ + "/tune.lock");
  CommandResult result;
  std::thread watching([&] { result = run_command({"report", search_, "--watch", "--interval=1"}); });
  while (!files_.exists(search_ + "/report.html")) std::this_thread::yield();
  EXPECT_EQ(data(search_ + "/report.html")["reload_seconds"], 1);
  write_run_folder(core::join_path(search_, "trial-003"), run_summary_of("resnet20"), 20);
  lock.reset();
  watching.join();
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(data(search_ + "/report.html")["runs"].size(), 3U) << "a run that began meanwhile";
  EXPECT_EQ(data(search_ + "/report.html")["reload_seconds"], nullptr);
}

// What was killed ends no file, and says that it runs; no process holds its lock.
TEST_F(ReportOfSearch, ThatWasKilledIsNotWatched) {
  nlohmann::ordered_json summary = run_summary_of("resnet20");
  summary["status"] = "running";
  write_run_folder(core::join_path(search_, "trial-001"), summary, 20);
  write("trial-001/run.lock", "");
  write("tune.lock", "");
  core::StopSource stop;  // ends a watch that begins nevertheless
  stop.request_stop(core::StopReason::kSignal, "SIGINT");
  EXPECT_EQ(run_command({"report", search_, "--watch"}, stop.token()).code, kSuccess);
  EXPECT_EQ(data(search_ + "/report.html")["reload_seconds"], nullptr);
  const core::LockFile lock(search_ + "/trial-001/run.lock");
  EXPECT_EQ(run_command({"report", search_, "--watch"}, stop.token()).code, kSuccess);
  EXPECT_EQ(data(search_ + "/report.html")["reload_seconds"], 10);
}

// While a run goes on the page loads itself again, and is written again when a file has changed; it ends with the run.
TEST_F(ReportCommand, WatchesUntilTheRunEnds) {
  nlohmann::ordered_json summary = run_summary_of("resnet20");
  summary["status"] = "running";
  const std::string directory = temp_.file("runs/a");
  write_run_folder(directory, summary, 20);
  const core::LockFile lock(core::join_path(directory, "run.lock"));
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

// It changes no file that the page shows.
TEST_F(ReportCommand, AKilledRunEndsTheWatch) {
  nlohmann::ordered_json summary = run_summary_of("resnet20");
  summary["status"] = "running";
  const std::string directory = temp_.file("runs/a");
  write_run_folder(directory, summary, 20);
  std::optional<core::LockFile> lock(std::in_place, core::join_path(directory, "run.lock"));
  CommandResult result;
  std::thread watching([&] { result = run_command({"report", directory, "--watch", "--interval=1"}); });
  while (!files_.exists(core::join_path(directory, "report.html"))) std::this_thread::yield();
  lock.reset();
  watching.join();
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(page("runs/a/report.html"), HasSubstr("\"reload_seconds\":null"));
}

// It has the lock, and until its first step is due the folder's summary is that of the run that it continues.
TEST_F(ReportCommand, ARunThatHasJustBeenContinuedIsWatched) {
  const std::string directory = temp_.file("runs/a"), summary = core::join_path(directory, "run_summary.json");
  const auto written = [&](std::chrono::minutes before_lock) {
    const core::LockFile lock(core::join_path(directory, "run.lock"));
    const auto locked = std::filesystem::last_write_time(core::join_path(directory, "run.lock"));
    std::filesystem::last_write_time(summary, locked - before_lock);
    core::StopSource stop;  // ends a watch that begins
    stop.request_stop(core::StopReason::kSignal, "SIGINT");
    EXPECT_EQ(run_command({"report", directory, "--watch"}, stop.token()).code, kSuccess);
    return page("runs/a/report.html");
  };
  EXPECT_THAT(written(std::chrono::minutes(1)), HasSubstr("\"reload_seconds\":10"));
  EXPECT_THAT(written(std::chrono::minutes(-1)), HasSubstr("\"reload_seconds\":null")) << "it has ended meanwhile";
}

TEST_F(ReportCommand, AStopEndsTheWatch) {
  nlohmann::ordered_json summary = run_summary_of("resnet20");
  summary["status"] = "running";
  write_run_folder(temp_.file("runs/a"), summary, 20);
  const core::LockFile lock(temp_.file("runs/a/run.lock"));
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGINT");
  EXPECT_EQ(run_command({"report", temp_.file("runs/a"), "--watch"}, stop.token()).code, kSuccess);
}

}  // namespace
}  // namespace trainyard::cli::report_test
