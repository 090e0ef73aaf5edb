// `trainyard suite`: its list, a run, and the table beside the run before.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::suite_test {
namespace {

TEST(SuiteCommand, ListsEntriesAndWhatThisMachineChanges) {
  const CommandResult all = run_command({"suite", "--list"});
  EXPECT_EQ(all.code, kSuccess) << all.err;
  EXPECT_EQ(count_lines(all.out, "^[A-Za-z0-9]+\\.[a-z0-9_]+$"), 98);
  EXPECT_EQ(count_lines(all.out, "^  does not run here: .*largest batch"), 0) << all.out;
  EXPECT_EQ(count_lines(all.out, "^[0-9]+ of 98 entries run here$"), 1) << all.out;
  const CommandResult some = run_command({"suite", "--list", "--run=Vgg16*"});
  EXPECT_EQ(count_lines(some.out, "^Vgg16Benchmarks\\."), 7);
}

TEST(SuiteCommand, PutsARunBesideTheOneBefore) {
  const core::TempDir temp;
  const Arguments command = {"suite", "--run=Resnet50BenchmarksInferenceCpu.synth_forward_batch1", "--minutes=0.01",
                             "--output=" + temp.file("suite.json")};
  const CommandResult first = run_command(command);
  ASSERT_EQ(first.code, kSuccess) << first.err;
  EXPECT_EQ(count_lines(first.out, "^Resnet50BenchmarksInferenceCpu.synth_forward_batch1 +[0-9.]+ +- +-  "), 1)
      << first.out;
  const CommandResult second = run_command(command);
  ASSERT_EQ(second.code, kSuccess) << second.err;
  EXPECT_EQ(
      count_lines(second.out, "^Resnet50BenchmarksInferenceCpu.synth_forward_batch1 +[0-9.]+ +[0-9.]+ +[0-9.]+  "), 1)
      << second.out;
  const auto history = nlohmann::json::parse(core::local_file_system().read_file(temp.file("suite.json")));
  ASSERT_EQ(history["runs"].size(), 2U);
  const auto& result = history["runs"][1]["results"][0];
  EXPECT_GE(result["iters"].get<int64_t>(), 1);
  EXPECT_GT(result["examples_per_sec"].get<double>(), 0);
  EXPECT_GT(result["wall_time"].get<double>(), 0);
}

// The first entries want data, which is a result; the one behind them runs, and is stopped.
TEST(SuiteCommand, KeepsTheResultsOfARunThatIsStopped) {
  const core::TempDir temp;
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGINT");
  const CommandResult result = run_command(
      {"suite", "--run=[TA]*Benchmarks.*", "--minutes=0.01", "--output=" + temp.file("suite.json")}, stop.token());
  EXPECT_EQ(result.code, kStoppedBySignal) << result.err;
  EXPECT_EQ(count_lines(result.out, "^TrivialBenchmarks\\.fake"), 4) << result.out;
  const auto history = nlohmann::json::parse(core::local_file_system().read_file(temp.file("suite.json")));
  ASSERT_EQ(history["runs"].size(), 1U);
  ASSERT_EQ(history["runs"][0]["results"].size(), 4U);
  EXPECT_EQ(history["runs"][0]["results"][0]["name"], "TrivialBenchmarks.fake_64batch");
  // Where nothing has run, nothing is written.
  const CommandResult none =
      run_command({"suite", "--run=Alexnet*", "--output=" + temp.file("none.json")}, stop.token());
  EXPECT_EQ(none.code, kStoppedBySignal) << none.err;
  EXPECT_FALSE(core::local_file_system().exists(temp.file("none.json")));
}

TEST(SuiteCommand, SaysWhatIsWrong) {
  const core::TempDir temp;
  EXPECT_EQ(run_command({"suite"}).code, kUsage);
  for (const Arguments& command : {Arguments{"suite", "--run=Nothing*"}, {"suite", "--list", "--run=Nothing*"}}) {
    const CommandResult none = run_command(command);
    EXPECT_EQ(none.code, kFailure);
    EXPECT_NE(none.err.find("suite --list"), std::string::npos) << none.err;
  }
  const CommandResult refused =
      run_command({"suite", "--run=NcfBenchmarks.synth_1gpu_gpuparams", "--output=" + temp.file("suite.json")});
  EXPECT_EQ(refused.code, kFailure);
  EXPECT_NE(refused.out.find("ncf"), std::string::npos) << refused.out;
  EXPECT_EQ(refused.out.find("failed:"), std::string::npos) << refused.out;
}

// The first entry runs; those of the trivial model begin, and find no images.
TEST(SuiteCommand, FailsWhereAnEntryBeganAndFailed) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  files.write_file_atomically(temp.file("train-00000-of-00001"), "");
  files.write_file_atomically(temp.file("validation-00000-of-00001"), "");
  const std::string output = temp.file("suite.json");
  const Arguments command = {"suite", "--run=[RT]*[Cl][pB]*[1h]", "--minutes=0.01", "--output=" + output};
  const CommandResult result = run_command(with_flags(command, {"--data_dir=" + temp.path()}));
  EXPECT_EQ(result.code, kFailure) << result.out;
  EXPECT_EQ(count_lines(result.out, "^Resnet50BenchmarksInferenceCpu.synth_forward_batch1 +[0-9.]+ "), 1) << result.out;
  EXPECT_EQ(count_lines(result.out, "^TrivialBenchmarks\\.fake.* failed: "), 4) << result.out;
  const auto results = nlohmann::json::parse(files.read_file(output))["runs"][0]["results"];
  ASSERT_EQ(results.size(), 5U);
  EXPECT_FALSE(results[0].contains("error"));
  EXPECT_EQ(results[1]["refused"], false);
  // Those that cannot run here for want of --data_dir fail nothing.
  const CommandResult without = run_command(command);
  EXPECT_EQ(without.code, kSuccess) << without.out;
  EXPECT_EQ(nlohmann::json::parse(files.read_file(output))["runs"][1]["results"][1]["refused"], true);
}

TEST(SuiteCommand, LooksAtItsFileBeforeAnythingRuns) {
  const core::TempDir temp;
  const Arguments command = {"suite", "--run=NcfBenchmarks.synth_1gpu_gpuparams"};
  const auto error_with = [&](const std::string& output) {
    const CommandResult result = run_command({command[0], command[1], "--output=" + output});
    EXPECT_EQ(result.out, "") << output;
    return result.err;
  };
  EXPECT_NE(error_with(temp.file("none/suite.json")).find("the folder of --output is not there"), std::string::npos);
  EXPECT_NE(error_with("").find("create file"), std::string::npos);
  core::local_file_system().write_file_atomically(temp.file("notes.txt"), "mine");
  EXPECT_NE(error_with(temp.file("notes.txt")).find("notes.txt"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::cli::suite_test
