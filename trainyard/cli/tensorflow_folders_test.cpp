// A folder with a checkpoint of TensorFlow: every command that takes a run's folder or a file of weights refuses it by
// name, and nothing in it changes.
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/shapes_suite.h"

namespace trainyard::cli::tensorflow_folders_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

class TensorFlowFolders : public ShapesSuite {
 protected:
  TensorFlowFolders() {
    write("checkpoint", "model_checkpoint_path: \"model.ckpt-110\"\n");
    write("model.ckpt-110.data-00000-of-00001", "numbers");
    write("model.ckpt-110.index", "names");
    write("model.ckpt-110.meta", "graph");
    write("events.out.tfevents.1700000000.host", "events");
  }
  void write(const std::string& name, const std::string& content) {
    core::FileSystem& files = core::local_file_system();
    files.make_directories(folder_);
    files.write_file_atomically(core::join_path(folder_, name), content);
  }
  std::map<std::string, std::string> content() const {
    std::map<std::string, std::string> found;
    core::FileSystem& files = core::local_file_system();
    for (const std::string& name : files.list(folder_)) {
      const std::string path = core::join_path(folder_, name);
      found[name] = files.info(path).is_directory ? "a folder" : files.read_file(path);
    }
    return found;
  }
  void expect_refused(const Arguments& arguments) {
    const auto before = content();
    const CommandResult result = run_command(arguments);
    SCOPED_TRACE(::testing::PrintToString(arguments));
    EXPECT_EQ(result.code, kUsage) << result.out << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("checkpoint of TensorFlow"), HasSubstr(folder_)));
    EXPECT_EQ(content(), before);
  }
  Arguments with_data(Arguments arguments) const {
    for (const std::string& more :
         {std::string("--model=trivial"), std::string("--data_name=shapes"), "--data_dir=" + shared->file("shapes"),
          std::string("--device=cpu"), std::string("--batch_size=4"), std::string("--num_batches=1")}) {
      arguments.push_back(more);
    }
    return arguments;
  }

  core::TempDir temp_;
  std::string folder_ = temp_.file("tf");
};

TEST_F(TensorFlowFolders, AreNoTrainDirectories) {
  const std::string train_dir = "--train_dir=" + folder_;
  for (const Arguments& command :
       {Arguments{}, Arguments{"train"}, Arguments{"--forward_only"}, Arguments{"--eval"}, Arguments{"eval"},
        Arguments{"--eval", "--eval_interval_secs=1"}, Arguments{"train", "--existing_run=back_up"},
        Arguments{"train", "--existing_run=delete"}, Arguments{"--image_size=28"}}) {
    Arguments arguments = with_data(command);
    arguments.push_back(train_dir);
    expect_refused(arguments);
    arguments.back() += "/";
    expect_refused(arguments);
  }
  expect_refused({"predict", train_dir, "image.jpg"});
  expect_refused({"export", train_dir, "--format=safetensors", "--output=" + temp_.file("out.safetensors")});
}

// A checkpoint of TensorFlow has no file of its path.
TEST_F(TensorFlowFolders, ArePathsAsTensorFlowHasThem) {
  for (const char* end : {"", "/model.ckpt-110", "/model.ckpt-110.index", "/checkpoint"}) {
    const std::string weights = "--weights=" + folder_ + end;
    expect_refused(with_data({"train", weights}));
    expect_refused(with_data({weights}));
    expect_refused(with_data({"eval", weights}));
    expect_refused({"predict", weights, "image.jpg"});
    expect_refused({"sparsity", folder_ + end});
  }
  expect_refused(with_data({"train", "--train_dir=" + folder_ + "/model.ckpt-110"}));
  expect_refused(with_data({"train", "--distill_from=" + folder_, "--distill_model=trivial"}));
}

TEST_F(TensorFlowFolders, AreNotForTheOtherTrainers) {
  const std::string records = temp_.file("records");
  ASSERT_EQ(
      run_command({"data", "convert", "--from=" + shared->file("shapes"), "--to=tfrecord", "--output=" + records}).code,
      kSuccess);
  expect_refused({"train-ctl", "--model=trivial", "--image_width=32", "--image_height=32", "-b4", "-i1",
                  "--precision=fp32", "--data_dir=" + records, "--log_dir=" + folder_});
  const Arguments program = {
      "program",          "--image_root=",       "--model_arch_name=lenet", "--image_shape=3,28,28",
      "--crop_size=28",   "--resize_short=32",   "--batch_size=2",          "--epochs=1",
      "--benchmark",      "--benchmark_steps=1", "--run_scope=train_only",  "--places=cpu:0",
      "--num_of_class=12"};
  expect_refused(with_flags(program, {"--output_dir=" + folder_}));
  for (const char* flag : {"--from_checkpoint=", "--from_pretrained_params="}) {
    expect_refused(with_flags(program, {"--output_dir=" + temp_.file("program"), flag + folder_}));
  }
}

TEST_F(TensorFlowFolders, GetNoPrunedCheckpoint) {
  const std::string run = temp_.file("run");
  Arguments training = with_data({"train"});
  training.push_back("--train_dir=" + run);
  ASSERT_EQ(run_command(training).code, kSuccess);
  expect_refused({"sparsity", run, "--prune", "--output=" + folder_});
}

// Models without a backbone have no use for one.
TEST_F(TensorFlowFolders, AreBackbonesOfDetectorsAlone) {
  const auto before = content();
  const CommandResult result = run_command(with_data({"--backbone_model_path=" + folder_ + "/model.ckpt-110"}));
  EXPECT_EQ(result.code, kUsage);
  EXPECT_THAT(result.err, HasSubstr("does not have backbone model"));
  EXPECT_EQ(content(), before);
}

// What a folder without checkpoints holds is said.
TEST_F(TensorFlowFolders, AnEvaluationSaysWhatItFoundInstead) {
  const std::string other = temp_.file("other");
  core::FileSystem& files = core::local_file_system();
  const auto evaluate = [&](const Arguments& command) {
    Arguments arguments = with_data(command);
    arguments.push_back("--train_dir=" + other);
    return run_command(arguments);
  };
  EXPECT_THAT(evaluate({"eval"}).err, HasSubstr("there is no such checkpoint, directory or file of weights"));
  files.make_directories(other);
  EXPECT_THAT(evaluate({"eval"}).err, HasSubstr("got an empty folder"));
  files.write_file_atomically(other + "/metrics.csv", "x");
  files.write_file_atomically(other + "/model.safetensors", "x");
  const CommandResult own = evaluate({"eval"});
  EXPECT_EQ(own.code, kFailure);
  EXPECT_THAT(own.err, AllOf(HasSubstr("got metrics.csv, model.safetensors"),
                             HasSubstr("--weights=" + other + "/model.safetensors")));
  const CommandResult tf = evaluate({"--eval"});
  EXPECT_EQ(tf.code, kSuccess);
  EXPECT_THAT(tf.out, HasSubstr("Checkpoint not found in " + other + "\n"));
  EXPECT_THAT(tf.err, HasSubstr("got metrics.csv, model.safetensors"));

  Arguments training = with_data({"train"});
  training.push_back("--train_dir=" + other + "/run-1");
  ASSERT_EQ(run_command(training).code, kSuccess);
  EXPECT_THAT(evaluate({"eval"}).err, AllOf(HasSubstr("metrics.csv, model.safetensors, run-1/"),
                                            HasSubstr("pass --train_dir=" + other + "/run-1")));
}

}  // namespace
}  // namespace trainyard::cli::tensorflow_folders_test
