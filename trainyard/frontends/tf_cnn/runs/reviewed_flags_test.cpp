// Effects of flags that the short runs of flag_effects_test.cpp do not show.
#include <functional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/threads/stop_token.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/flags.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/read_options.h"

namespace trainyard::frontends::reviewed_flags_test {
namespace {

using ::testing::HasSubstr, ::testing::Not;
using Arguments = std::vector<std::string>;

TfCnnOptions options_of(Dialect dialect, const Arguments& more) {
  Arguments arguments = {"--model=lenet",          "--device=cpu",          "--deterministic",
                         "--num_warmup_batches=0", "--num_intra_threads=1", "--init_learning_rate=0.01"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return read_options(core::parse_flags(tf_cnn_flags(dialect), arguments), dialect);
}

TfCnnOptions options_of(const Arguments& more) {
  return options_of(Dialect::kTfCnnBenchmarks, more);
}

void train(const std::string& train_dir, int steps) {
  std::ostringstream out;
  BenchmarkCnn(options_of({"--batch_size=2", "--num_batches=" + std::to_string(steps), "--train_dir=" + train_dir}))
      .run(out);
}

TEST(ReviewedFlags, OfForwardPasses) {
  const PreparedRun run =
      prepare(options_of({"--forward_only", "--num_classes=7", "--batch_size=3", "--num_gpus=2", "--use_bf16"}));
  EXPECT_EQ(run.num_classes, 7);
  EXPECT_EQ(run.graph.node("fc2").parameters.front().shape.front(), 7);
  EXPECT_EQ(run.batch_size, 3);
  EXPECT_EQ(run.replicas, 2);
  EXPECT_EQ(run.device.dtype, at::kBFloat16);
  EXPECT_EQ(prepare(options_of({"--forward_only"})).device.dtype, at::kFloat);
}

TEST(ReviewedFlags, OfTrainings) {
  const PreparedRun run =
      prepare(options_of(Dialect::kTrainyard, {"--synthetic", "--train_dir=", "--num_batches=1", "--num_classes=7"}));
  EXPECT_EQ(run.num_classes, 7);
  EXPECT_EQ(run.graph.node("fc2").parameters.front().shape.front(), 7);
  EXPECT_EQ(options_of({"--save_model_secs=7"}).saving.save_model_secs, 7);
}

TEST(ReviewedFlags, OfEvaluations) {
  const core::TempDir directory;
  train(directory.file("run"), 1);
  const Arguments evaluation = {"--eval", "--train_dir=" + directory.file("run"),
                                "--eval_dir=" + directory.file("eval")};
  EXPECT_EQ(prepare(options_of(evaluation)).device.dtype, at::kFloat);
  Arguments narrow = evaluation;
  narrow.emplace_back("--use_bf16");
  EXPECT_EQ(prepare(options_of(narrow)).device.dtype, at::kBFloat16);
}

// Gives what is written to `seen`, flush by flush.
class WatchedBuffer : public std::stringbuf {
 public:
  explicit WatchedBuffer(std::function<void(const std::string&)> seen) : seen_(std::move(seen)) {}
  int sync() override {
    const std::string all = str();
    const std::string written = all.substr(told_);
    told_ = all.size();
    seen_(written);
    return 0;
  }

 private:
  std::function<void(const std::string&)> seen_;
  size_t told_ = 0;
};

class EvaluationInterval : public ::testing::Test {
 protected:
  static constexpr const char* kResult = "Accuracy @ 1 = ";

  void SetUp() override {
    for (const int steps : {1, 2}) train(run_, steps);
    take_away(2);
  }
  // A checkpoint comes and goes as another process saves and removes it: whole.
  void take_away(int step) { files_.rename(name(run_, step), name(temp_.path(), step)); }
  void bring_back(int step) { files_.rename(name(temp_.path(), step), name(run_, step)); }
  void stop() { stop_.request_stop(core::StopReason::kSignal, "SIGTERM"); }

  // Evaluates once a second, and returns what was printed.
  std::string evaluate(const std::function<void(const std::string&)>& seen) {
    WatchedBuffer buffer(seen);
    std::ostream out(&buffer);
    const RunStatistics statistics =
        BenchmarkCnn(options_of({"--eval", "--batch_size=2", "--num_eval_batches=2", "--eval_interval_secs=1",
                                 "--train_dir=" + run_, "--eval_dir=" + temp_.file("eval")}))
            .run(out, stop_.token());
    EXPECT_TRUE(statistics.stopped_by_signal);
    return buffer.str();
  }
  std::string loaded(int step) const { return "Successfully loaded model from " + name(run_, step) + ".\n"; }

 private:
  static std::string name(const std::string& directory, int step) {
    return core::join_path(directory, "model.ckpt-" + std::to_string(step));
  }

  const core::TempDir temp_;
  const std::string run_ = temp_.file("run");
  core::FileSystem& files_ = core::local_file_system();
  core::StopSource stop_;
};

TEST_F(EvaluationInterval, EvaluatesTheNewestCheckpointUntilItIsStopped) {
  int results = 0;
  const std::string out = evaluate([&](const std::string& written) {
    if (written.find(kResult) == std::string::npos) return;
    if (++results == 1) bring_back(2);
    if (results == 2) stop();
  });
  EXPECT_EQ(results, 2);
  EXPECT_THAT(out, HasSubstr(loaded(1)));
  EXPECT_THAT(out.substr(out.find(kResult)), HasSubstr(loaded(2)));
}

TEST_F(EvaluationInterval, WaitsForTheFirstCheckpoint) {
  take_away(1);
  const std::string out = evaluate([&](const std::string& written) {
    if (written.find("Checkpoint not found") != std::string::npos) bring_back(1);
    if (written.find(kResult) != std::string::npos) stop();
  });
  EXPECT_THAT(out.substr(0, out.find("Checkpoint not found")), Not(HasSubstr("Successfully")));
  EXPECT_THAT(out, HasSubstr(loaded(1)));
  EXPECT_THAT(out, HasSubstr(kResult));
}

// The training has continued with images of another size meanwhile, for which the data are opened again.
TEST(EvaluationOfARun, TakesWhatTheNewestCheckpointSays) {
  const core::TempDir temp;
  core::FileSystem& files = core::local_file_system();
  const auto options = [&temp](const Arguments& more) {
    Arguments arguments = {
        "--model=resnet20", "--data_name=cifar10",   "--synthetic",         "--device=cpu",
        "--batch_size=2",   "--num_intra_threads=1", "--existing_run=keep", "--train_dir=" + temp.file("run")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return read_options(core::parse_flags(tf_cnn_flags(Dialect::kTrainyard), arguments), Dialect::kTrainyard);
  };
  const auto train_on = [&options](const std::string& size, const std::string& steps) {
    std::ostringstream lines;
    BenchmarkCnn(options({"--init_learning_rate=0.01", "--image_size=" + size, "--num_batches=" + steps})).run(lines);
  };
  train_on("16x24", "1");
  train_on("40", "2");
  const std::string newest = temp.file("run/model.ckpt-2"), aside = temp.file("model.ckpt-2");
  files.rename(newest, aside);
  core::StopSource stop;
  int results = 0;
  WatchedBuffer buffer([&](const std::string& written) {
    if (written.find("Accuracy @ 1 = ") == std::string::npos) return;
    if (++results == 1) files.rename(aside, newest);
    if (results == 2) stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  });
  std::ostream out(&buffer);
  testing::internal::CaptureStderr();
  const RunStatistics statistics =
      BenchmarkCnn(options({"--eval", "--num_eval_batches=1", "--eval_exact=false", "--eval_interval_secs=1"}))
          .run(out, stop.token());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(statistics.stopped_by_signal);
  EXPECT_EQ(results, 2);
  EXPECT_THAT(log, HasSubstr("/run/model.ckpt-1: --image_size=16x24"));
  EXPECT_THAT(log, HasSubstr("/run/model.ckpt-2: --image_size=40x40"));
}

}  // namespace
}  // namespace trainyard::frontends::reviewed_flags_test
