// Bad input as a user meets it: one line that says what, where and what to do, a code that is not zero, nothing lost.
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::bad_input_test {
namespace {

core::FileSystem& files() {
  return core::local_file_system();
}

class BadInput : public ::testing::Test {
 protected:
  BadInput() { data::write_shapes({.train_count = 24, .validation_count = 12, .train_shards = 1}, data_dir_); }

  CommandResult train(const std::string& data_dir, const Arguments& more = {}) const {
    Arguments all = {"train",
                     "--model=trivial",
                     "--data_name=shapes",
                     "--data_dir=" + data_dir,
                     "--device=cpu",
                     "--batch_size=4",
                     "--num_batches=8",
                     "--num_warmup_batches=0",
                     "--display_every=100",
                     "--train_dir=" + train_dir_,
                     "--num_intra_threads=1"};
    return run_command(with_flags(all, more));
  }
  std::string shard() const { return core::join_path(data_dir_, files().list(data_dir_).front()); }
  // Changes the bytes of the training shard.
  void damage(const std::function<void(std::string&)>& change) const {
    std::string bytes = files().read_file(shard());
    change(bytes);
    files().write_file_atomically(shard(), bytes);
  }
  static void expect_refused(const CommandResult& result, const std::vector<std::string>& parts) {
    EXPECT_NE(result.code, kSuccess);
    for (const std::string& part : parts)
      EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
    EXPECT_EQ(count_lines(result.err, " error "), 1) << result.err;
  }

  core::TempDir temp_;
  std::string data_dir_ = temp_.file("shapes"), train_dir_ = temp_.file("run");
};

TEST_F(BadInput, MissingAndEmptyDataDirectories) {
  expect_refused(train(temp_.file("nowhere")), {"data directory does not exist", "nowhere", "--data_dir"});
  files().make_directories(temp_.file("empty"));
  expect_refused(train(temp_.file("empty")), {"Found no files in --data_dir matching", "empty"});
}

TEST_F(BadInput, ATruncatedRecord) {
  damage([](std::string& bytes) { bytes.resize(bytes.size() - 7); });
  expect_refused(train(data_dir_), {"train-00000-of-00001", "offset"});
}

TEST_F(BadInput, AFlippedByteInARecord) {
  damage([](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  expect_refused(train(data_dir_), {"train-00000-of-00001", "offset", "crc32c"});
}

// The run that fails says what to pass; with it, the damage is told and counted, and the run goes on.
TEST_F(BadInput, ABadSampleCanBeSkippedOrSubstituted) {
  damage([](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  expect_refused(train(data_dir_), {"crc32c", "trainyard data verify", "--on_bad_sample=skip"});
  for (const std::string policy : {"skip", "substitute"}) {
    train_dir_ = temp_.file("run_" + policy);
    const CommandResult result = train(data_dir_, {"--on_bad_sample=" + policy});
    EXPECT_EQ(result.code, kSuccess) << result.err;
    EXPECT_EQ(count_lines(result.err, "bad sample (skipped|replaced).*train-00000-of-00001 at offset [0-9]+"), 1);
    EXPECT_EQ(count_lines(result.out, "^Bad samples: +1$"), 1) << result.out;
    EXPECT_NE(files().read_file(core::join_path(train_dir_, "run_summary.json")).find("\"bad_samples\": 1"),
              std::string::npos);
  }
  expect_refused(train(data_dir_, {"--on_bad_sample=skip", "--bad_sample_budget=0", "--train_dir=" + temp_.file("z")}),
                 {"too many bad samples", "--bad_sample_budget=0", "train-00000-of-00001"});
  EXPECT_EQ(train(data_dir_, {"--on_bad_sample=ignore"}).code, kUsage);
}

TEST_F(BadInput, AnExactEvaluationLeavesBadSamplesOut) {
  ASSERT_EQ(train(data_dir_).code, kSuccess);
  const std::string validation = core::join_path(data_dir_, "validation-00000-of-00001");
  std::string bytes = files().read_file(validation);
  bytes[bytes.size() / 2] ^= 1;
  files().write_file_atomically(validation, bytes);
  const CommandResult result =
      run_command({"eval", "--model=trivial", "--data_name=shapes", "--data_dir=" + data_dir_, "--device=cpu",
                   "--train_dir=" + train_dir_, "--batch_size=4", "--eval_exact", "--on_bad_sample=skip"});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "\\[11 examples\\]"), 1) << result.out;
  EXPECT_EQ(count_lines(result.err, "1 bad samples in the evaluation's data; 11 images"), 1) << result.err;
}

TEST_F(BadInput, ALengthOfTwoToTheSixty) {
  damage([](std::string& bytes) { bytes[7] = 0x10; });
  expect_refused(train(data_dir_), {"train-00000-of-00001", "offset 0"});
}

TEST_F(BadInput, AnUnknownModelSuggestsTheNearest) {
  expect_refused(train(data_dir_, {"--model=resnet21"}),
                 {"Invalid model name 'resnet21' for dataset 'shapes'", "resnet20"});
}

TEST_F(BadInput, AFeatureThatIsNotThere) {
  const CommandResult result = run_command({"--model=ncf", "--device=cpu", "--forward_only"});
  expect_refused(result, {"ncf"});
  EXPECT_EQ(result.code, kUsage);
}

TEST_F(BadInput, AClusterWithoutItsHosts) {
  expect_refused(train(data_dir_, {"--job_name=worker"}), {"the cluster has no workers", "--worker_hosts"});
  expect_refused(train(data_dir_, {"--job_name=worker", "--worker_hosts=a:1"}), {"parameter servers", "--ps_hosts"});
  expect_refused(train(data_dir_, {"--worker_hosts=a:1"}), {"--worker_hosts is of --job_name"});
}

TEST_F(BadInput, ACheckpointOfAnotherModelStays) {
  ASSERT_EQ(train(data_dir_).code, kSuccess);
  expect_refused(train(data_dir_, {"--model=resnet20"}), {"trivial", "resnet20", train_dir_});
  EXPECT_EQ(train::find_checkpoint(train_dir_).global_step, 8);
  EXPECT_EQ(train(data_dir_, {"--num_batches=9"}).code, kSuccess);
}

TEST_F(BadInput, ATruncatedCheckpoint) {
  ASSERT_EQ(train(data_dir_).code, kSuccess);
  const std::string tensors = core::join_path(train::find_checkpoint(train_dir_).path, "tensors.bin");
  std::string bytes = files().read_file(tensors);
  bytes.resize(bytes.size() / 2);
  files().write_file_atomically(tensors, bytes);
  expect_refused(train(data_dir_, {"--num_batches=12"}), {"tensors.bin", "expected"});
}

TEST_F(BadInput, ATrainDirectoryThatIsAFile) {
  files().write_file_atomically(train_dir_, "not a directory");
  expect_refused(train(data_dir_), {train_dir_});
  EXPECT_EQ(files().read_file(train_dir_), "not a directory");
}

TEST_F(BadInput, EvaluationWithoutACheckpoint) {
  expect_refused(run_command({"eval", "--model=trivial", "--data_name=shapes", "--data_dir=" + data_dir_,
                              "--train_dir=" + temp_.path(), "--device=cpu"}),
                 {"No checkpoint file found in dir:" + temp_.path()});
}

// With and without --data_name, in each command.
TEST_F(BadInput, AMissingFolderIsSaidToBeMissing) {
  const std::string nowhere = temp_.file("nowhere");
  const Arguments commands[] = {{"train", "--model=trivial", "--data_dir=" + nowhere},
                                {"--model=trivial", "--data_dir=" + nowhere},
                                {"eval", "--model=trivial", "--train_dir=" + temp_.path(), "--data_dir=" + nowhere},
                                {"bench", "data", "--data_dir=" + nowhere},
                                {"data", "show", "--data_dir=" + nowhere},
                                {"data", "verify", nowhere},
                                {"data", "index", nowhere},
                                {"data", "convert", "--from=" + nowhere, "--to=tfrecord", "--output=" + nowhere + "2"}};
  for (Arguments command : commands) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(command, " ")));
    expect_refused(run_command(command), {"data directory does not exist: " + nowhere});
    if (command[1] == "index") continue;
    command.push_back("--data_name=cifar10");
    expect_refused(run_command(command), {"data directory does not exist: " + nowhere});
  }
}

TEST_F(BadInput, AFolderInThePlaceOfAFileToWrite) {
  ASSERT_EQ(train(data_dir_).code, kSuccess);
  const std::string from = "--train_dir=" + train_dir_, folder = temp_.path();
  const Arguments commands[] = {{"export", from, "--output=" + folder},
                                {"export", from, "--output=" + temp_.file("new/")},
                                {"predict", from, "--input=x.npy", "--output=" + folder},
                                {"data", "show", "--data_name=shapes", "--data_dir=" + data_dir_, "--output=" + folder},
                                {"models", "lenet", "--graph=" + folder},
                                {"bench", "layers", "--model=trivial", "--json=" + folder}};
  for (const Arguments& command : commands) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(command, " ")));
    const CommandResult result = run_command(command);
    EXPECT_EQ(result.code, kUsage);
    expect_refused(result, {"is a folder"});
  }
}

TEST_F(BadInput, ARunWithNothingLeftSaysWhatTheStepsAre) {
  ASSERT_EQ(train(data_dir_).code, kSuccess);  // 8 steps
  const CommandResult batches = train(data_dir_, {"--num_batches=5"});
  EXPECT_EQ(batches.code, kSuccess);
  EXPECT_EQ(count_lines(batches.err,
                        "nothing is left to do: .*run has done 8 steps, and this run wants 5 "
                        "\\(--num_batches=5\\)"),
            1)
      << batches.err;
  const CommandResult epochs = train(data_dir_, {"--num_batches=0", "--num_epochs=2", "--batch_size=12"});
  EXPECT_EQ(
      count_lines(epochs.err, "has done 8 steps, and this run wants 4 \\(--num_epochs=2 of 24 examples, 12 a step"), 1)
      << epochs.err;
}

// The folder's name says nothing: "x", not "shapes".
TEST_F(BadInput, TfRecordsAreRecognisedByTheirFirstRecord) {
  const std::string anonymous = temp_.file("x");
  files().rename(data_dir_, anonymous);
  const Arguments command = {
      "train",          "--train_dir=",    "--model=trivial",        "--data_dir=" + anonymous, "--device=cpu",
      "--batch_size=4", "--num_batches=1", "--num_warmup_batches=0", "--num_intra_threads=1"};
  const CommandResult result = run_command(command);
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.err, "--data_name=shapes"), 1) << result.err;
  files().write_file_atomically(core::join_path(anonymous, files().list(anonymous).front()),
                                "a text of more than twelve bytes");
  expect_refused(run_command(command), {"the file is no TFRecord", anonymous});
}

TEST_F(BadInput, ImagesThatCannotBeDecoded) {
  ASSERT_EQ(train(data_dir_).code, kSuccess);
  const std::string from = "--train_dir=" + train_dir_, image = temp_.file("x.jpg");
  expect_refused(run_command({"predict", from, temp_.file("missing.jpg")}), {"missing.jpg"});
  files().write_file_atomically(image, "");
  expect_refused(run_command({"predict", from, image}), {"x.jpg"});
  files().write_file_atomically(image, "GIF89a and more");
  expect_refused(run_command({"predict", from, image}), {"x.jpg"});
}

TEST_F(BadInput, ArraysThatDoNotFit) {
  ASSERT_EQ(train(data_dir_).code, kSuccess);
  const std::string from = "--train_dir=" + train_dir_, array = temp_.file("x.npy");
  files().write_file_atomically(array, "\x93NUMPY");
  expect_refused(run_command({"predict", from, "--input=" + array, "--output=" + temp_.file("y.npy")}), {"x.npy"});
  expect_refused(run_command({"predict", from, "--input=" + array}), {"--input and --output belong together"});
}

}  // namespace
}  // namespace trainyard::cli::bad_input_test
