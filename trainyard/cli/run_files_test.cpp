// What a training does where files of its names are links, pipes or files of others.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::cli::run_files_test {
namespace {

using ::testing::HasSubstr;

class RunFiles : public ::testing::Test {
 protected:
  RunFiles() { files_.make_directories(run_); }
  CommandResult train() const {
    return run_command({"train", "--model=trivial", "--data_name=cifar10", "--synthetic", "--device=cpu",
                        "--batch_size=2", "--num_batches=2", "--num_warmup_batches=0", "--num_intra_threads=1",
                        "--train_dir=" + run_});
  }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
  std::string run_ = temp_.file("run"), precious_ = temp_.file("precious");
};

constexpr const char* kNames[] = {"run.lock",      "metrics.jsonl",       "metrics.csv",     "run_summary.json",
                                  "curve.svg",     "class_accuracy.json", "evaluation.json", "confusion.csv",
                                  "confusion.svg", "per_class.csv",       "calibration.svg", "most_wrong.png"};

TEST_F(RunFiles, ATrainingWritesThroughNoLink) {
  for (const std::string name : kNames) {
    for (const bool dangling : {false, true}) {
      files_.write_file_atomically(precious_, "text");
      const std::string path = core::join_path(run_, name), target = dangling ? temp_.file("nowhere") : precious_;
      ASSERT_EQ(::symlink(target.c_str(), path.c_str()), 0);
      const CommandResult refused = train();
      EXPECT_EQ(refused.code, kUsage) << name;
      EXPECT_THAT(refused.err, HasSubstr("a symbolic link is not written through: " + path));
      EXPECT_EQ(files_.read_file(precious_), "text") << name;
      EXPECT_FALSE(files_.exists(temp_.file("nowhere"))) << name;
      ASSERT_EQ(::unlink(path.c_str()), 0);
    }
  }
  EXPECT_TRUE(files_.list(run_).empty()) << "nothing was begun";
  // The folder itself may be one.
  ASSERT_EQ(::symlink(run_.c_str(), temp_.file("link").c_str()), 0);
  run_ = temp_.file("link");
  const CommandResult trained = train();
  EXPECT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_TRUE(files_.exists(temp_.file("run/metrics.jsonl")));
}

TEST_F(RunFiles, APipeIsRefusedAndNotWaitedFor) {
  for (const std::string name : kNames) {
    const std::string path = core::join_path(run_, name);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    const CommandResult refused = train();
    EXPECT_EQ(refused.code, kUsage) << name;
    EXPECT_THAT(refused.err, HasSubstr("a pipe or device is not written like a file: " + path));
    ASSERT_EQ(::unlink(path.c_str()), 0);
  }
}

TEST_F(RunFiles, MetricsOfOthersAreNotAddedTo) {
  for (const std::string name : {"metrics.jsonl", "metrics.csv"}) {
    const std::string path = core::join_path(run_, name), text = "{\"step\": 1, \"loss\": 0.5}\nnotes";
    files_.write_file_atomically(path, text);
    const CommandResult refused = train();
    EXPECT_EQ(refused.code, kFailure) << name;
    EXPECT_THAT(refused.err, HasSubstr("not a file of metrics: " + path));
    EXPECT_EQ(files_.read_file(path), text);
    files_.remove_file(path);
  }
}

TEST_F(RunFiles, ALinkThatAUserNamesIsFollowed) {
  const std::string link = temp_.file("link.dot");
  ASSERT_EQ(::symlink("graph.txt", link.c_str()), 0);
  const CommandResult drawn = run_command({"models", "lenet", "--graph=" + link});
  EXPECT_EQ(drawn.code, kSuccess) << drawn.err;
  EXPECT_THAT(files_.read_file(temp_.file("graph.txt")), HasSubstr("digraph"));
  EXPECT_EQ(core::output_kind(link), core::OutputKind::kLink);
}

}  // namespace
}  // namespace trainyard::cli::run_files_test
