#include "trainyard/train/callbacks/run_summary.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/machine/machine_info.h"
#include "trainyard/core/testing/golden.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/callbacks/run_record_json.h"

namespace trainyard::train::run_summary_test {
namespace {

using ::testing::HasSubstr;

TEST(RunSummary, IsJsonAndAFewLines) {
  const core::TempDir directory;
  RunSummary summary{.model = "resnet20",
                     .dataset = "shapes",
                     .mode = "training",
                     .global_step = 110,
                     .steps = 100,
                     .seconds = 12.5,
                     .images_per_second = 256,
                     .compute = {.model_flops = 6.3e10, .limit_flops = 2.5e11},
                     .shares = {1, 0.05, 0.85, 0, 0.1},
                     .metrics = {{"loss", 0.125}, {"eval_top_1_accuracy", 0.97}},
                     .checkpoint = "out/model.ckpt-110",
                     .tensorboard_directory = "out",
                     .metrics_json = "out/metrics.jsonl"};
  const std::string path = directory.file("new/run_summary.json");
  write_run_summary(summary, path);
  const auto json = nlohmann::json::parse(core::local_file_system().read_file(path));
  EXPECT_EQ(json["metrics"]["eval_top_1_accuracy"], 0.97);
  EXPECT_EQ(json["time_shares"]["compute"], 0.85);
  EXPECT_EQ(json["model_flops_per_second"], 6.3e10);
  EXPECT_EQ(json["limit_flops_per_second"], 2.5e11);
  EXPECT_EQ(json["checkpoint"], "out/model.ckpt-110");
  EXPECT_TRUE(json["best_checkpoint"].is_null());
  EXPECT_TRUE(json["metrics_csv"].is_null());
  EXPECT_TRUE(json["stopped_by"].is_null());
  EXPECT_TRUE(core::matches_golden(run_summary_text(summary, "out/run_summary.json") + "\n",
                                   "trainyard/train/testdata/run_summary.txt"));
  EXPECT_EQ(json["skipped_steps"], 0);
  EXPECT_TRUE(json["peak_memory_bytes"].is_null());
  summary.peak_memory_bytes = int64_t{5} << 30;
  EXPECT_TRUE(json["gradient_bytes"].is_null());
  summary.gradient_bytes = parallel::GradientBytes{.exchanged = 210'000'000, .uncompressed = 19'635'000'000};
  write_run_summary(summary, path);
  EXPECT_EQ(nlohmann::json::parse(core::local_file_system().read_file(path))["gradient_bytes"]["exchanged"],
            210'000'000);
  EXPECT_THAT(
      run_summary_text(summary, "x"),
      HasSubstr("\nExchange:     210.0 MB of gradients, 93.5 times less than the 19635.0 MB without compression\n"));
  summary.skipped_steps = 3;
  write_run_summary(summary, path);
  EXPECT_EQ(nlohmann::json::parse(core::local_file_system().read_file(path))["skipped_steps"], 3);
  EXPECT_EQ(nlohmann::json::parse(core::local_file_system().read_file(path))["peak_memory_bytes"], 5368709120);
  EXPECT_THAT(run_summary_text(summary, "x"), HasSubstr("\nSkipped:      3 steps whose loss or gradient was not"));
  summary.metrics = {{"loss", -std::nan("")}};  // what processors make of 0 / 0 has a sign
  summary.stopped_by = "SIGTERM";
  write_run_summary(summary, path);
  EXPECT_EQ(nlohmann::json::parse(core::local_file_system().read_file(path))["metrics"]["loss"], "nan");
  EXPECT_THAT(run_summary_text(summary, "x"), HasSubstr("\nStopped by:   SIGTERM\n"));
  summary.compute.limit_is_low = true;
  EXPECT_THAT(run_summary_text(summary, "x"), HasSubstr("25 % of the machine's limit, which was measured on a busy"));
  summary.compute.limit_flops = 0;
  EXPECT_THAT(run_summary_text(summary, "x"),
              HasSubstr("\nCompute:      63.0 GFLOP/s of the model (trainyard doctor --limits measures"));
  write_run_summary(summary, path);
  EXPECT_TRUE(nlohmann::json::parse(core::local_file_system().read_file(path))["limit_flops_per_second"].is_null());
}

// Two ranks, of which the second one works for 9 s, and the first one for 6 s and then waits.
TEST(RunSummary, SaysWhichRankIsSlow) {
  const std::vector<StepTimes> ranks = {{10, 1, 4, 4, 1, false, 3.2}, {10, 2, 6, 1, 1, false, 0.2}};
  EXPECT_EQ(slowest_rank(ranks), 1);
  EXPECT_EQ(rank_times_text(ranks),
            "waiting for others 17 % and moving numbers 8 % of the time of 2 ranks, slowest rank 1 (it waited 2 %, the "
            "others 32 %)");
  const core::TempDir directory;
  const RunSummary summary{.model = "m", .rank_seconds = ranks};
  const std::string path = directory.file("run_summary.json");
  write_run_summary(summary, path);
  const auto json = nlohmann::json::parse(core::local_file_system().read_file(path))["ranks"];
  EXPECT_EQ(json["slowest"], 1);
  EXPECT_EQ(json["seconds"][0]["communication"], 4);
  EXPECT_EQ(json["seconds"][0]["waiting"], 3.2);
  EXPECT_THAT(run_summary_text(summary, "x"), HasSubstr("\nRanks:        waiting for others 17 %"));
  EXPECT_EQ(time_shares_text({1, 0.1, 0.4, 0.4, 0.1, false, 0.32}),
            "input 10 %, compute 40 %, communication 40 % (waiting 32 %), update 10 %");

  // On accelerators nobody knows; one process alone says nothing.
  const std::vector<StepTimes> accelerators = {{10, 1, 9, 0, 0, true}, {10, 1, 9, 0, 0, true}};
  EXPECT_EQ(slowest_rank(accelerators), -1);
  EXPECT_EQ(rank_times_text(accelerators), "2 ranks");
  EXPECT_EQ(rank_times_text({}), "");
  EXPECT_THAT(run_summary_text({}, "x"), ::testing::Not(HasSubstr("Ranks:")));
}

TEST(RunSummary, NamesTheBestCheckpoint) {
  const core::TempDir directory;
  const RunSummary summary{.model = "m", .best = BestCheckpoint{{"out/best", 90}, "top_1_accuracy", 0.9731}};
  const std::string path = directory.file("run_summary.json");
  write_run_summary(summary, path);
  const auto best = nlohmann::json::parse(core::local_file_system().read_file(path))["best_checkpoint"];
  EXPECT_EQ(best["path"], "out/best");
  EXPECT_EQ(best["global_step"], 90);
  EXPECT_EQ(best["metric"], "top_1_accuracy");
  EXPECT_EQ(best["value"], 0.9731);
  EXPECT_THAT(run_summary_text(summary, "x"), HasSubstr("\nBest:         out/best (step 90, top_1_accuracy 0.9731)\n"));
}

TEST(RunSummary, SaysWhatTheRunIsWhileItRunsAndHowItEnded) {
  const core::TempDir directory;
  const std::string path = directory.file("run_summary.json");
  RunSummary summary;
  summary.status = RunStatus::kRunning;
  summary.record = {.command = "trainyard train",
                    .flags = {{"model", std::string("lenet")},
                              {"batch_size", int64_t{64}},
                              {"momentum", 0.9},
                              {"eval", false},
                              {"num_epochs", {}},
                              {"steps", std::vector<std::string>{"1", "2"}}},
                    .given_flags = {"batch_size"},
                    .choices = {{"executor", "cpu"}},
                    .data_dir = "/data/pets",
                    .num_classes = 3,
                    .train_examples = 120,
                    .seed = 7,
                    .instruction_set = "AVX2",
                    .started_at = 1700000000.25};
  const auto written = [&] {
    write_run_summary(summary, path);
    return nlohmann::json::parse(core::local_file_system().read_file(path));
  };
  auto json = written();
  EXPECT_EQ(json["status"], "running");
  EXPECT_EQ(json["started"], "2023-11-14T22:13:20.250Z");
  EXPECT_TRUE(json["ended"].is_null());
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(json["command"], "trainyard train");
  EXPECT_EQ(json["flags"].dump(),
            R"({"batch_size":64,"eval":false,"model":"lenet","momentum":0.9,"num_epochs":null,"steps":["1","2"]})");
  EXPECT_EQ(json["given_flags"].dump(), R"(["batch_size"])");
  EXPECT_EQ(json["choices"]["executor"], "cpu");
  EXPECT_EQ(json["data"]["directory"], "/data/pets");
  EXPECT_TRUE(json["data"]["files"].is_null());  // not looked at yet
  EXPECT_EQ(json["data"]["num_classes"], 3);
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["machine"]["instruction_set"], "AVX2");
  EXPECT_GT(json["machine"]["memory_bytes"], 0);
  EXPECT_FALSE(json["versions"]["LibTorch"].get<std::string>().empty());

  summary.status = RunStatus::kFailed;
  summary.error = "no space left";
  summary.ended_at = 1700000010;
  summary.record.data_digest = "2 files, 9 bytes, 00ff";
  json = written();
  EXPECT_EQ(json["status"], "failed");
  EXPECT_EQ(json["error"], "no space left");
  EXPECT_EQ(json["ended"], "2023-11-14T22:13:30.000Z");
  EXPECT_EQ(json["data"]["files"], "2 files, 9 bytes, 00ff");
}

// What the thread that hands work over cannot tell apart is not told apart.
TEST(RunSummary, OfAnAcceleratorHasTwoShares) {
  const core::TempDir directory;
  const RunSummary summary{.model = "m", .shares = {1, 0.05, 0.95, 0, 0, true}};
  const std::string path = directory.file("run_summary.json");
  write_run_summary(summary, path);
  const auto shares = nlohmann::json::parse(core::local_file_system().read_file(path))["time_shares"];
  EXPECT_EQ(shares["input"], 0.05);
  EXPECT_EQ(shares["compute"], 0.95);
  EXPECT_TRUE(shares["communication"].is_null());
  EXPECT_TRUE(shares["update"].is_null());
  EXPECT_THAT(run_summary_text(summary, "x"), HasSubstr("\nTime:         waiting for input 5 %, all else 95 %: "));
}

TEST(RunRecord, WritesDatesInUtc) {
  EXPECT_EQ(utc_date(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(utc_date(951782400.5), "2000-02-29T00:00:00.500Z");
}

// No two fields have one number or name, so that none is written in the place of another.
TEST(RunSummary, WritesEachFieldUnderItsName) {
  const core::TempDir directory;
  RunSummary summary;
  summary.record.data_dir = "/data/pets";
  summary.record.num_classes = 3;
  summary.record.train_examples = 120;
  summary.record.validation_examples = 40;
  summary.record.gpus = {"first", "second"};
  summary.status = RunStatus::kStopped;
  summary.model = "resnet20";
  summary.dataset = "shapes";
  summary.mode = "evaluation";
  summary.global_step = 110;
  summary.steps = 100;
  summary.seconds = 12.5;
  summary.images_per_second = 256.5;
  summary.shares = {1, 0.125, 0.5, 0.25, 0.0625, false, 0.1875};
  summary.rank_seconds = {{10, 1, 4, 3, 2, false, 2.5}, {11, 1.25, 5, 1.5, 1.75, false, 0.5}};
  summary.gradient_bytes = parallel::GradientBytes{.exchanged = 5, .uncompressed = 8};
  summary.bad_samples = 7;
  summary.checkpoint = "out/model.ckpt-110";
  summary.tensorboard_directory = "out/events";
  summary.metrics_json = "out/metrics.jsonl";
  summary.metrics_csv = "out/metrics.csv";
  summary.curve = "out/curve.svg";
  const std::string path = directory.file("run_summary.json");
  write_run_summary(summary, path);
  const auto json = nlohmann::json::parse(core::local_file_system().read_file(path));
  EXPECT_EQ(json["data"]["num_classes"], 3);
  EXPECT_EQ(json["data"]["train_examples"], 120);
  EXPECT_EQ(json["data"]["validation_examples"], 40);
  EXPECT_EQ(json["machine"]["gpus"].dump(), R"(["first","second"])");
  EXPECT_EQ(json["status"], "stopped");
  EXPECT_EQ(json["model"], "resnet20");
  EXPECT_EQ(json["dataset"], "shapes");
  EXPECT_EQ(json["mode"], "evaluation");
  EXPECT_EQ(json["global_step"], 110);
  EXPECT_EQ(json["steps"], 100);
  EXPECT_EQ(json["seconds"], 12.5);
  EXPECT_EQ(json["images_per_second"], 256.5);
  EXPECT_EQ(json["time_shares"].dump(),
            R"({"communication":0.25,"compute":0.5,"input":0.125,"update":0.0625,"waiting":0.1875})");
  EXPECT_EQ(json["ranks"]["seconds"][1].dump(),
            R"({"communication":1.5,"compute":5.0,"input":1.25,"seconds":11.0,"update":1.75,"waiting":0.5})");
  EXPECT_EQ(json["gradient_bytes"]["exchanged"], 5);
  EXPECT_EQ(json["gradient_bytes"]["uncompressed"], 8);
  EXPECT_EQ(json["bad_samples"], 7);
  EXPECT_EQ(json["skipped_steps"], 0);
  EXPECT_EQ(json["tensorboard_directory"], "out/events");
  EXPECT_EQ(json["metrics_json"], "out/metrics.jsonl");
  EXPECT_EQ(json["metrics_csv"], "out/metrics.csv");
  EXPECT_EQ(json["curve"], "out/curve.svg");
  const std::string text = run_summary_text(summary, "x");
  EXPECT_THAT(text, HasSubstr("Trained:      resnet20 on shapes, 100 steps in 12.5 s, 256.5 images/s\n"));
  EXPECT_THAT(text, HasSubstr("\nBad samples:  7\n"));
  EXPECT_THAT(text, HasSubstr("\nCurve:        out/curve.svg\n"));
}

// The ranks have times of different lengths, so that a mean of their shares is not the share of their sum.
TEST(RunSummary, OfThreeRanksTellsHowLongTheOthersWaited) {
  const std::vector<StepTimes> ranks = {
      {30, 3, 18, 7, 2, false, 5}, {20, 3, 12, 4, 1, false, 1}, {10, 1, 3, 5, 1, false, 3}};
  EXPECT_EQ(slowest_rank(ranks), 1);
  EXPECT_EQ(rank_times_text(ranks),
            "waiting for others 15 % and moving numbers 12 % of the time of 3 ranks, slowest rank 1 (it waited 5 %, "
            "the others 20 %)");
  EXPECT_THAT(slow_rank_warning(ranks, 16).value_or(""),
              HasSubstr("rank 1 is slow: the others waited for it for 20 % of the time of the last 16 steps, and it "
                        "waited for 5 %; "));
  // What is behind the last rank in memory does not count.
  std::vector<StepTimes> shortened = ranks;
  shortened.push_back({1000, 0, 0, 900, 100, false, 900});
  shortened.pop_back();
  EXPECT_EQ(rank_times_text(shortened), rank_times_text(ranks));
}

TEST(RunSummary, WhereNoRankHasWaitedNoneIsSlow) {
  const core::TempDir directory;
  const RunSummary summary{.model = "m", .rank_seconds = {{10, 1, 8, 0.5, 0.5}, {10, 1, 8, 0.5, 0.5}}};
  EXPECT_EQ(slowest_rank(summary.rank_seconds), -1);
  EXPECT_EQ(rank_times_text(summary.rank_seconds), "2 ranks");
  EXPECT_EQ(slow_rank_warning(summary.rank_seconds, 16), std::nullopt);
  const std::string path = directory.file("run_summary.json");
  write_run_summary(summary, path);
  const auto json = nlohmann::json::parse(core::local_file_system().read_file(path))["ranks"];
  EXPECT_TRUE(json["slowest"].is_null());
  EXPECT_EQ(json["seconds"].size(), 2U);
}

TEST(RunRecord, NamesTheMachineAndTheProgram) {
  const core::TempDir directory;
  const std::string path = directory.file("run_summary.json");
  write_run_summary({}, path);
  const auto json = nlohmann::json::parse(core::local_file_system().read_file(path));
  const core::MachineInfo machine = core::machine_info();
  EXPECT_EQ(json["machine"]["name"], machine.name);
  EXPECT_EQ(json["machine"]["cpu"], machine.processor);
  EXPECT_EQ(json["machine"]["cores"], machine.cores);
  const core::BuildInfo& build = core::build_info();
  EXPECT_EQ(json["versions"]["trainyard"], std::string(build.version));
  EXPECT_EQ(json["versions"]["git_revision"], std::string(build.git_revision));
  EXPECT_EQ(json["versions"]["compiler"], std::string(build.compiler));
  EXPECT_EQ(json["version"], std::string(build.version) + " (" + std::string(build.git_revision) + ")");
}

}  // namespace
}  // namespace trainyard::train::run_summary_test
