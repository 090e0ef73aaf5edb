#include "trainyard/train/run_summary.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/golden.h"
#include "trainyard/core/temp_dir.h"

namespace trainyard::train {
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
  EXPECT_TRUE(json["metrics_csv"].is_null());
  EXPECT_TRUE(json["stopped_by"].is_null());
  EXPECT_TRUE(core::matches_golden(run_summary_text(summary, "out/run_summary.json") + "\n",
                                   "trainyard/train/testdata/run_summary.txt"));
  summary.metrics = {{"loss", std::nan("")}};
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
  EXPECT_EQ(compute_rate_text({}), "");
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

}  // namespace
}  // namespace trainyard::train
