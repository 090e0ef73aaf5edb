// A folder with a checkpoint of TensorFlow: commands that read weights read it, every command that writes refuses it by
// name, and nothing in it changes.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/shapes_suite.h"
#include "trainyard/formats/testing/tensorflow_checkpoint_writer.h"

namespace trainyard::cli::tensorflow_folders_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

class TensorFlowFolders : public ShapesSuite {
 protected:
  TensorFlowFolders() {
    // What tf_cnn_benchmarks keeps of --model=trivial --data_name=cifar10, here for the 12 classes of the shapes.
    const auto add = [this](const std::string& name, const std::vector<int64_t>& shape) {
      formats::TestVariable& variable = variables_["v/cg/" + name];
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      variable.shape = shape;
      for (int64_t i = 0; i < count; ++i) variable.values.push_back(static_cast<float>(i * 7 % 11 - 5) / 100);
      variables_["v/cg/" + name + "/Momentum"] = variable;
    };
    for (const auto& [number, in, out] : {std::tuple(0, 3072, 1), {1, 1, 4096}, {2, 4096, 12}}) {
      add(fmt::format("affine{}/weights", number), {in, out});
      add(fmt::format("affine{}/biases", number), {out});
    }
    formats::write_tensorflow_checkpoint(core::join_path(folder_, "model.ckpt-110"), variables_, 110);
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

  // Runs a command that reads the folder, and expects that it changes nothing there.
  CommandResult read_by(const Arguments& arguments) const {
    const auto before = content();
    CommandResult result = run_command(arguments);
    EXPECT_EQ(content(), before) << ::testing::PrintToString(arguments);
    return result;
  }

  core::TempDir temp_;
  std::string folder_ = temp_.file("tf");
  std::map<std::string, formats::TestVariable> variables_;
};

TEST_F(TensorFlowFolders, AreNotTrainedIn) {
  const std::string train_dir = "--train_dir=" + folder_;
  for (const Arguments& command :
       {Arguments{}, Arguments{"train"}, Arguments{"--forward_only"}, Arguments{"train", "--existing_run=back_up"},
        Arguments{"train", "--existing_run=delete"}, Arguments{"--image_size=28"}}) {
    Arguments arguments = with_data(command);
    arguments.push_back(train_dir);
    expect_refused(arguments);
    arguments.back() += "/";
    expect_refused(arguments);
  }
  expect_refused(with_data({"train", train_dir + "/model.ckpt-110"}));
}

std::string accuracy_line(const std::string& out) {
  const size_t begin = out.find("Accuracy @ 1");
  return begin == std::string::npos ? out : out.substr(begin, out.find('[', begin) - begin);
}

// A checkpoint of TensorFlow has no file of its path.
TEST_F(TensorFlowFolders, AreEvaluatedExportedAndTrainedFrom) {
  const std::string exported = temp_.file("w.safetensors");
  const CommandResult wrote = read_by({"export", "--train_dir=" + folder_ + "/", "--model=trivial",
                                       "--data_name=shapes", "--format=safetensors", "--output=" + exported});
  EXPECT_EQ(wrote.code, kSuccess) << wrote.err;
  const CommandResult expected = read_by(with_data({"eval", "--weights=" + exported}));
  ASSERT_EQ(expected.code, kSuccess) << expected.err;
  for (const char* end : {"", "/model.ckpt-110", "/model.ckpt-110.index", "/checkpoint"}) {
    const std::string path = folder_ + end;
    const CommandResult own = read_by(with_data({"eval", "--weights=" + path}));
    EXPECT_EQ(own.code, kSuccess) << own.err;
    EXPECT_EQ(accuracy_line(own.out), accuracy_line(expected.out));
    const CommandResult trained = read_by(with_data({"train", "--weights=" + path, "--train_dir="}));
    EXPECT_EQ(trained.code, kSuccess) << trained.err;
  }
  const CommandResult tf = read_by(with_data({"--eval", "--train_dir=" + folder_}));
  EXPECT_EQ(tf.code, kSuccess) << tf.err;
  EXPECT_THAT(tf.out, HasSubstr("Successfully loaded model from " + folder_ + "/model.ckpt-110."));
  const CommandResult own = read_by(with_data({"eval", "--train_dir=" + folder_}));
  EXPECT_EQ(own.code, kSuccess) << own.err;
  EXPECT_EQ(accuracy_line(own.out), accuracy_line(expected.out));
}

// The training continues at step 110, with the momentum.
TEST_F(TensorFlowFolders, TrainingsContinueInANewFolder) {
  const std::string run = temp_.file("run");
  const Arguments to_run = {
      "export",         "--train_dir=" + folder_, "--model=trivial", "--data_name=shapes", "--format=checkpoint",
      "--output=" + run};
  const CommandResult wrote = read_by(to_run);
  ASSERT_EQ(wrote.code, kSuccess) << wrote.err;
  EXPECT_THAT(wrote.out, HasSubstr("the state of tf_nesterov after 110 steps of trivial to " + run));
  EXPECT_EQ(read_by(to_run).code, kUsage) << "a run is there";
  EXPECT_THAT(read_by({"export", "--train_dir=" + run, "--format=checkpoint", "--output=" + temp_.file("more")}).err,
              HasSubstr("this one is Trainyard's already"));
  Arguments training = with_data({"train", "--train_dir=" + run, "--optimizer=momentum", "--init_learning_rate=0.001"});
  training[std::find(training.begin(), training.end(), "--num_batches=1") - training.begin()] = "--num_batches=112";
  const CommandResult trained = run_command(training);
  EXPECT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("continuing from " + run + "/model.ckpt-110"));
  EXPECT_TRUE(core::local_file_system().exists(run + "/model.ckpt-112"));
}

TEST_F(TensorFlowFolders, ThatDoNotFitAreRefusedByTheirNames) {
  const std::string weights = "--weights=" + folder_;
  const CommandResult other = read_by({"export", weights, "--model=resnet20", "--data_name=shapes",
                                       "--format=safetensors", "--output=" + temp_.file("out.safetensors")});
  EXPECT_EQ(other.code, kUsage);
  EXPECT_THAT(other.err, AllOf(HasSubstr("the checkpoint of TensorFlow is not of resnet20"),
                               HasSubstr("missing in the checkpoint: v/cg/conv0/conv2d/kernel"),
                               HasSubstr("only in the checkpoint: v/cg/affine1/biases")));
  EXPECT_EQ(read_by({"predict", weights, "image.jpg"}).code, kUsage) << "no --model";
  EXPECT_EQ(read_by({"sparsity", folder_}).code, kUsage);
  const std::string index = folder_ + "/model.ckpt-110.index";
  std::string damaged = core::local_file_system().read_file(index);
  damaged[damaged.size() / 2] ^= 1;
  write("model.ckpt-110.index", damaged);
  const CommandResult read = read_by(with_data({"eval", weights}));
  EXPECT_EQ(read.code, kFailure);
  EXPECT_THAT(read.err, AllOf(HasSubstr("checksum"), HasSubstr(index)));
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

TEST_F(TensorFlowFolders, GetNoExportedCheckpoint) {
  expect_refused({"export", "--train_dir=" + folder_, "--model=trivial", "--data_name=shapes", "--format=checkpoint",
                  "--output=" + folder_});
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
