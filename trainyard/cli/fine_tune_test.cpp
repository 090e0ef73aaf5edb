// Fine-tuning as docs/howto/fine_tune.md shows it: weights of a file, a training with --finetune, its report,
// evaluation and predictions; what other weights and other commands say.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/weights.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::cli::fine_tune_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

class FineTune : public ::testing::Test {
 protected:
  FineTune() {
    for (int i = 0; i < 20; ++i) write("photos/dark", i, 20 + i), write("photos/light", i, 200 + i);
  }
  void write(const std::string& folder, int i, int level) {
    const auto bytes = data::encode_png(data::flat_image(32, 32, level));
    files_.make_directories(temp_.file(folder));
    files_.write_file_atomically(temp_.file(folder + "/" + std::to_string(i) + ".png"),
                                 {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  // Writes a file of weights of 1000 classes, as torchvision publishes them, that says nothing of itself.
  std::string published(const std::string& model) {
    const std::string run = temp_.file("published_run"),
                      file = temp_.file(model.substr(model.find('/') + 1) + ".safetensors");
    EXPECT_EQ(run_command({"train", "--model=" + model, "--synthetic", "--device=cpu", "--image_size=32",
                           "--num_classes=1000", "--batch_size=2", "--num_batches=1", "--train_dir=" + run,
                           "--existing_run=delete", "--num_intra_threads=1", "--progress=off"})
                  .code,
              0);
    EXPECT_EQ(
        run_command({"export", "--train_dir=" + run, "--format=safetensors", "--output=" + temp_.file("own")}).code, 0);
    copy_without_metadata(temp_.file("own"), file);
    return file;
  }
  CommandResult tune(const Arguments& more) {
    return run_command(
        with_flags({"train", "--finetune", "--data_dir=" + temp_.file("photos"), "--device=cpu", "--image_size=32",
                    "--train_dir=" + temp_.file("run"), "--num_epochs=2", "--num_intra_threads=1", "--progress=off"},
                   more));
  }

  const core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(FineTune, IsASessionOfFiveCommands) {
  const std::string weights = published("torchvision/resnet18");
  const CommandResult tuned = tune({"--model=torchvision/resnet18", "--weights=" + weights});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  // 60 parameters and 40 statistics of the body; the head's two tensors are new.
  EXPECT_THAT(tuned.err,
              HasSubstr("100 tensors are taken from " + weights + "; new, for 2 classes: fc.weight, fc.bias"));
  EXPECT_THAT(tuned.out, AllOf(HasSubstr("Fine-tuning:"), HasSubstr("--freeze_until=backbone:0.2")));
  const std::string run = temp_.file("run"), best = temp_.file("run/best");
  EXPECT_EQ(run_command({"report", run}).code, 0);
  const CommandResult evaluated = run_command({"eval", "--train_dir=" + best, "--data_dir=" + temp_.file("photos")});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  const CommandResult predicted = run_command({"predict", "--train_dir=" + best, temp_.file("photos/dark/0.png")});
  EXPECT_THAT(predicted.out, AllOf(HasSubstr("dark"), HasSubstr("light")));
}

TEST_F(FineTune, OtherWeightsAreAnErrorThatListsTheirTensors) {
  const std::string weights = published("torchvision/resnet18");
  const CommandResult other = tune({"--model=torchvision/resnet34", "--weights=" + weights});
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.err, AllOf(HasSubstr("weights are not of this model"), HasSubstr("missing in the file: layer"),
                               HasSubstr("pass the --model that the weights belong to")));
  const CommandResult unnamed = tune({"--weights=" + weights});
  EXPECT_NE(unnamed.code, 0);
  EXPECT_THAT(unnamed.err, HasSubstr("pass --model"));
  const CommandResult none = tune({"--model=torchvision/resnet18"});
  EXPECT_NE(none.code, 0);
  EXPECT_THAT(none.err, HasSubstr("there are no weights to start from"));
}

TEST_F(FineTune, IsRefusedWhereItCannotApply) {
  for (const Arguments& command : {Arguments{"train-ctl"}, Arguments{"find-lr", "--weights=x", "--data_dir=x"},
                                   Arguments{"eval", "--weights=x", "--data_dir=x"}, Arguments{"predict"}}) {
    Arguments all = command;
    all.emplace_back("--finetune");
    const CommandResult refused = run_command(all);
    EXPECT_NE(refused.code, 0) << command.front();
    EXPECT_THAT(refused.err, HasSubstr("finetune")) << command.front();
  }
}

}  // namespace
}  // namespace trainyard::cli::fine_tune_test
