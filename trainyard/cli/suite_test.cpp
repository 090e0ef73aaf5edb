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
  const CommandResult none = run_command({"suite", "--run=Nothing*"});
  EXPECT_NE(none.code, kSuccess);
  EXPECT_NE(none.err.find("suite --list"), std::string::npos) << none.err;
  const CommandResult refused =
      run_command({"suite", "--run=NcfBenchmarks.synth_1gpu_gpuparams", "--output=" + temp.file("suite.json")});
  EXPECT_EQ(refused.code, kFailure);
  EXPECT_NE(refused.out.find("ncf"), std::string::npos) << refused.out;
}

}  // namespace
}  // namespace trainyard::cli::suite_test
