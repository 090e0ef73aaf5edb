#include "trainyard/frontends/tf_cnn/output/benchmark_log.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/testing/golden.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::frontends::benchmark_log_test {
namespace {

TEST(BenchmarkLog, WritesUpstreamsFiles) {
  const core::TempDir directory;
  BenchmarkLog log(directory.file("logs"), core::local_file_system(), [] { return 1700000000.25; });
  log.write_run({.model = "resnet20",
                 .dataset = "cifar10",
                 .mode = "training",
                 .devices = {"/cpu:0"},
                 .batch_size = 64,
                 .batch_size_per_device = 32,
                 .num_batches = 100,
                 .num_epochs = 0.128,
                 .data_format = "NHWC",
                 .optimizer = "sgd",
                 .rewrite_config = "constant_folding",
                 .configuration = {{"model", "resnet20"}},
                 .test_id = "mine"});
  log.write({.local_step = 10,
             .global_step = 20,
             .speed = {.mean = 812.5},
             .loss = 2,
             .accuracies = train::Accuracies{0.5, 1}});
  log.write_total(800, 110);
  log.write({.top_1 = 0.75, .top_5 = 0.9, .samples = 100, .seconds = 0.5}, 110);
  log.close();
  core::FileSystem& files = core::local_file_system();
  auto run = nlohmann::json::parse(files.read_file(directory.file("logs/benchmark_run.log")));
  for (const char* key : {"model", "dataset", "mode", "single_sess", "devices", "batch_size", "batch_size_per_device",
                          "num_batches", "num_epochs", "data_format", "optimizer", "rewrite_config", "configuration",
                          "test_id", "machine", "versions", "run_date"}) {
    EXPECT_TRUE(run.contains(key)) << key;
  }
  EXPECT_EQ(run["run_date"], "2023-11-14T22:13:20.250Z");
  EXPECT_GE(run["machine"]["cores"], 1);
  for (const char* key : {"machine", "versions", "run_date"}) run.erase(key);
  EXPECT_EQ(run, nlohmann::json::parse(R"({
    "model": "resnet20", "dataset": "cifar10", "mode": "training", "single_sess": false, "devices": ["/cpu:0"],
    "batch_size": 64, "batch_size_per_device": 32, "num_batches": 100, "num_epochs": 0.128, "data_format": "NHWC",
    "optimizer": "sgd", "rewrite_config": "constant_folding", "configuration": {"model": "resnet20"},
    "test_id": "mine"})"));
  EXPECT_TRUE(core::matches_golden(files.read_file(directory.file("logs/metric.log")),
                                   "trainyard/frontends/testdata/metric.log"));
}

// Data sets and numbers may have names of the caller's own.
TEST(BenchmarkLog, TextsAreUtf8) {
  const core::TempDir directory;
  BenchmarkLog log(directory.path(), core::local_file_system(), [] { return 1700000000.25; });
  log.write_run({.dataset = "caf\xc3\xa9", .test_id = "\xff"});
  log.write_metric("caf\xc3\xa9", 2.5, "\xff", 3);
  log.close();
  core::FileSystem& files = core::local_file_system();
  const std::string run = files.read_file(directory.file("benchmark_run.log"));
  EXPECT_NE(run.find("\"dataset\":\"caf\xc3\xa9\""), std::string::npos) << run;
  EXPECT_NE(run.find("\"test_id\":\"\xef\xbf\xbd\""), std::string::npos) << run;
  EXPECT_EQ(files.read_file(directory.file("metric.log")),
            "{\"name\":\"caf\xc3\xa9\",\"value\":2.5,\"unit\":\"\xef\xbf\xbd\",\"global_step\":3,"
            "\"timestamp\":\"2023-11-14T22:13:20.250Z\"}\n");
}

}  // namespace
}  // namespace trainyard::frontends::benchmark_log_test
