// Forward passes and evaluations through the command line: what they share with a training, and what they do not.
#include <chrono>
#include <map>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::forward_only_test {
namespace {

// A short run of a small model on synthetic images, with `more` at its end.
Arguments arguments(const Arguments& more) {
  Arguments all = {"--model=trivial", "--data_name=cifar10",     "--device=cpu",      "--batch_size=4",
                   "--num_batches=3", "--num_warmup_batches=0",  "--display_every=1", "--optimizer=momentum",
                   "--momentum=0.9",  "--init_learning_rate=0.1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

int step_lines(const CommandResult& result) {
  return count_lines(result.out, "^[0-9]+\timages/sec: ");
}

// Checksums of the newest checkpoint's tensors, by name.
std::map<std::string, int64_t> tensors_of(const std::string& train_dir) {
  const std::string path = core::join_path(train::find_checkpoint(train_dir).path, "manifest.json");
  std::map<std::string, int64_t> checksums;
  const auto manifest = nlohmann::json::parse(core::local_file_system().read_file(path));
  for (const auto& entry : manifest.at("tensors")) {
    checksums[entry.at("name")] = entry.at("crc32c");
  }
  return checksums;
}

TEST(ForwardOnly, RunsAndWritesNothingWithoutATrainDir) {
  const CommandResult result = run_command(arguments({"--forward_only", "--num_warmup_batches=1"}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^Mode:        forward only$"), 1);
  EXPECT_EQ(step_lines(result), 3);
  EXPECT_EQ(count_lines(result.out, "^total images/sec: [0-9.]+$"), 1);
}

// Upstream's testForwardOnlyAndFreeze. The latency is for people: flags alone say it on stderr.
TEST(ForwardOnly, FreezesAndTellsTheLatency) {
  const core::TempDir temp;
  const CommandResult result =
      run_command(arguments({"--forward_only", "--freeze_when_forward_only", "--model=resnet20", "--num_batches=20",
                             "--benchmark_log_dir=" + temp.path()}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(step_lines(result), 20);
  const std::regex percentiles(
      "latency of a batch of 4: p50 ([0-9.]+) ms, p90 ([0-9.]+) ms, p99 ([0-9.]+) ms, max ([0-9.]+) ms\n");
  std::smatch latency;
  ASSERT_TRUE(std::regex_search(result.err, latency, percentiles)) << result.err;
  for (size_t i = 1; i < 4; ++i) EXPECT_LE(std::stod(latency[i]), std::stod(latency[i + 1]));

  std::map<std::string, double> metrics;
  std::istringstream lines(core::local_file_system().read_file(temp.file("metric.log")));
  for (std::string line; std::getline(lines, line);) {
    const auto metric = nlohmann::json::parse(line);
    metrics[metric.at("name")] = metric.at("value");
  }
  EXPECT_NEAR(metrics.at("latency_p50"), std::stod(latency[1]), 0.01);
  EXPECT_NEAR(metrics.at("latency_p99"), std::stod(latency[3]), 0.01);
  EXPECT_GT(metrics.at("average_examples_per_sec"), 0);
}

// Upstream's testForwardOnly: num_batches steps and a checkpoint; then, with twice as many, those that are left.
TEST(ForwardOnly, SavesItsStepsAndGoesOnFromThem) {
  const core::TempDir temp;
  const std::string train_dir = "--train_dir=" + temp.path();
  const CommandResult first =
      run_command(arguments({"--forward_only", train_dir, "--num_batches=20", "--num_warmup_batches=5"}));
  ASSERT_EQ(first.code, kSuccess) << first.err;
  EXPECT_EQ(step_lines(first), 20);
  EXPECT_EQ(train::find_checkpoint(temp.path()).global_step, 25);
  const CommandResult second =
      run_command(arguments({"--forward_only", train_dir, "--num_batches=40", "--num_warmup_batches=5"}));
  ASSERT_EQ(second.code, kSuccess) << second.err;
  EXPECT_EQ(step_lines(second), 15);
  EXPECT_EQ(train::find_checkpoint(temp.path()).global_step, 45);
}

TEST(ForwardOnly, RunsATrainedModelAndKeepsAllOfIt) {
  const core::TempDir temp;
  const std::string train_dir = "--train_dir=" + temp.path();
  ASSERT_EQ(run_command(arguments({train_dir})).code, kSuccess);
  const auto trained = tensors_of(temp.path());
  ASSERT_TRUE(std::any_of(trained.begin(), trained.end(), [](auto& t) { return t.first.starts_with("optimizer/"); }));

  const CommandResult forward = run_command(arguments({"--forward_only", train_dir, "--num_batches=5"}));
  ASSERT_EQ(forward.code, kSuccess) << forward.err;
  EXPECT_EQ(step_lines(forward), 2);
  EXPECT_NE(forward.err.find("continuing from " + temp.path()), std::string::npos) << forward.err;
  EXPECT_EQ(forward.err.find("warning"), std::string::npos) << forward.err;
  EXPECT_EQ(train::find_checkpoint(temp.path()).global_step, 5);
  EXPECT_EQ(tensors_of(temp.path()), trained);

  const CommandResult resumed = run_command(arguments({train_dir, "--num_batches=6"}));
  ASSERT_EQ(resumed.code, kSuccess) << resumed.err;
  EXPECT_EQ(step_lines(resumed), 1);
  EXPECT_NE(tensors_of(temp.path()), trained);
}

// What the lines of the steps say of accuracy, for the same weights.
std::string accuracies(const Arguments& more) {
  const CommandResult result = run_command(arguments(more));
  EXPECT_EQ(result.code, kSuccess) << result.err;
  std::string columns;
  const std::regex line("\timages/sec[^\n]*\t([0-9.]+)\t([0-9.]+)\n");
  for (std::sregex_iterator at(result.out.begin(), result.out.end(), line), end; at != end; ++at) {
    columns += (*at)[1].str() + " " + (*at)[2].str() + "\n";
  }
  return columns;
}

// It is training's images that are measured, as in tf_cnn_benchmarks: distorted where --distortions says so.
TEST(ForwardOnly, SeesTrainingImages) {
  const core::TempDir temp;
  ASSERT_EQ(run_command(
                {"data", "make-shapes", "--output=" + temp.file("shapes"), "--train_count=256", "--validation_count=8"})
                .code,
            kSuccess);
  const Arguments on_shapes = {"--forward_only",     "--model=resnet20",
                               "--data_name=shapes", "--data_dir=" + temp.file("shapes"),
                               "--batch_size=64",    "--num_batches=8"};
  const auto with = [&](const char* flag) {
    Arguments all = on_shapes;
    all.emplace_back(flag);
    return accuracies(all);
  };
  const std::string distorted = with("--distortions"), plain = with("--nodistortions");
  EXPECT_EQ(std::count(plain.begin(), plain.end(), '\n'), 8) << plain;
  EXPECT_NE(distorted, plain);
  EXPECT_EQ(with("--nodistortions"), plain);
}

TEST(ForwardOnly, RefusesTheCheckpointOfAnotherModel) {
  const core::TempDir temp;
  const std::string train_dir = "--train_dir=" + temp.path();
  ASSERT_EQ(run_command(arguments({train_dir})).code, kSuccess);
  const CommandResult other = run_command(arguments({"--forward_only", train_dir, "--model=resnet20"}));
  EXPECT_EQ(other.code, kUsage);
  EXPECT_NE(other.err.find("trivial"), std::string::npos) << other.err;
}

// Micro-steps belong to an update. The command takes longer than its steps, so speed times its seconds is at least the
// number of images, and not many times that.
TEST(ForwardOnly, CountsNoImagesOfMicroSteps) {
  const auto begin = std::chrono::steady_clock::now();
  const CommandResult result = run_command(arguments(
      {"--forward_only", "--model=resnet20", "--micro_steps=64", "--num_batches=8", "--num_intra_threads=1"}));
  const double seconds = core::seconds_since(begin);
  ASSERT_EQ(result.code, kSuccess) << result.err;
  std::smatch speed;
  ASSERT_TRUE(std::regex_search(result.out, speed, std::regex("total images/sec: ([0-9.]+)")));
  const double images = 8 * 4;
  EXPECT_GT(std::stod(speed[1]) * seconds, 0.99 * images);
  EXPECT_LT(std::stod(speed[1]) * seconds, 32 * images);
}

TEST(ForwardOnly, AStopHasTheDocumentedExitCode) {
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  const CommandResult result = run_command(arguments({"--forward_only", "--num_batches=1000000"}), stop.token());
  EXPECT_EQ(result.code, 75) << result.err;  // docs/howto/exit_codes.md
  EXPECT_EQ(kStoppedBySignal, 75);
}

// Evaluation and forward passes run on the calling thread, which keeps the count.
TEST(IntraThreads, HoldInForwardPassesAndEvaluations) {
  const core::TempDir temp;
  const std::string train_dir = "--train_dir=" + temp.path();
  ASSERT_EQ(run_command(arguments({train_dir, "--num_intra_threads=1"})).code, kSuccess);
  EXPECT_EQ(at::get_num_threads(), 1);
  ASSERT_EQ(run_command(arguments({"--forward_only", "--num_intra_threads=3"})).code, kSuccess);
  EXPECT_EQ(at::get_num_threads(), 3);
  ASSERT_EQ(run_command(arguments({"--eval", train_dir, "--num_eval_batches=1", "--num_intra_threads=2"})).code,
            kSuccess);
  EXPECT_EQ(at::get_num_threads(), 2);
}

}  // namespace
}  // namespace trainyard::cli::forward_only_test
