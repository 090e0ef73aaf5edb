// Weights out of the program and into it again.
#include <algorithm>

#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/weights.h"
#include "trainyard/core/base/build_info.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/formats/tensors/hdf5.h"
#include "trainyard/formats/tensors/npy.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::export_test {
namespace {

class Export : public ::testing::Test {
 protected:
  // A checkpoint after two steps, and four images for it.
  void SetUp() override {
    const CommandResult trained = run_command({"train", "--model=resnet20", "--data_name=cifar10", "--synthetic",
                                               "--device=cpu", "--batch_size=4", "--num_batches=2",
                                               "--num_warmup_batches=0", "--num_classes=10", "--train_dir=" + run_});
    ASSERT_EQ(trained.code, kSuccess) << trained.err;
    std::vector<float> pixels(4 * 3 * 32 * 32);
    core::RandomStream stream(1, "images");
    for (float& pixel : pixels) pixel = stream.normal();
    const std::vector<int64_t> shape = {4, 3, 32, 32};
    core::local_file_system().write_file_atomically(images_, formats::encode_npy<float>(shape, pixels));
  }

  std::string logits(const std::vector<std::string>& model) {
    std::vector<std::string> arguments = {"predict", "--input=" + images_, "--output=" + temp_.file("logits.npy")};
    arguments.insert(arguments.end(), model.begin(), model.end());
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return core::local_file_system().read_file(temp_.file("logits.npy"));
  }

  const core::TempDir temp_;
  const std::string run_ = temp_.file("run"), images_ = temp_.file("images.npy"),
                    weights_ = temp_.file("w.safetensors");
};

TEST_F(Export, SafetensorsGiveTheSameLogits) {
  const CommandResult exported =
      run_command({"export", "--train_dir=" + run_, "--format=safetensors", "--output=" + weights_});
  ASSERT_EQ(exported.code, kSuccess) << exported.err;
  EXPECT_NE(exported.out.find("of resnet20 to"), std::string::npos) << exported.out;
  const std::string expected = logits({"--train_dir=" + run_});
  EXPECT_EQ(logits({"--weights=" + weights_, "--model=resnet20", "--data_name=cifar10"}), expected);

  // Again from the file.
  const std::string second = temp_.file("second.safetensors");
  ASSERT_EQ(
      run_command({"export", "--weights=" + weights_, "--model=resnet20", "--data_name=cifar10", "--output=" + second})
          .code,
      kSuccess);
  EXPECT_EQ(core::local_file_system().read_file(second), core::local_file_system().read_file(weights_));
}

// A file of another program does not say how many classes it is for: they are the data set's.
TEST_F(Export, AFileWithoutMetadataHasTheClassesOfItsDataSet) {
  const std::string bare = temp_.file("bare.safetensors");
  ASSERT_EQ(run_command({"export", "--train_dir=" + run_, "--output=" + weights_}).code, kSuccess);
  copy_without_metadata(weights_, bare);
  EXPECT_EQ(logits({"--weights=" + bare, "--model=resnet20", "--data_name=cifar10"}), logits({"--train_dir=" + run_}));
}

// The newest checkpoint is damaged: predicting with an older one, or saying that there is none, would hide it.
TEST_F(Export, ADamagedCheckpointIsNamedAsSuch) {
  const std::string newest = train::find_checkpoint(run_).path;
  core::local_file_system().write_file_atomically(core::join_path(newest, "manifest.json"), "{}");
  const CommandResult result = run_command({"export", "--train_dir=" + run_, "--output=" + weights_});
  EXPECT_NE(result.code, kSuccess);
  EXPECT_NE(result.err.find(newest), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("there is no such checkpoint"), std::string::npos) << result.err;
}

TEST_F(Export, TrainingStartsFromWeights) {
  ASSERT_EQ(run_command({"export", "--train_dir=" + run_, "--output=" + weights_}).code, kSuccess);
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "train",          "--model=resnet20", "--data_name=cifar10",    "--synthetic",         "--device=cpu",
        "--batch_size=4", "--num_batches=1",  "--num_warmup_batches=0", "--tf_random_seed=77", "--weights=" + weights_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command(arguments);
  };
  // A learning rate of zero leaves the weights alone: what is saved is what was loaded, on every replica.
  for (const char* update : {"--variable_update=parameter_server", "--variable_update=replicated"}) {
    const core::TempDir other;
    const CommandResult kept = train(
        {"--num_classes=10", "--init_learning_rate=0", "--num_gpus=2", update, "--train_dir=" + other.file("run")});
    ASSERT_EQ(kept.code, kSuccess) << kept.err;
    EXPECT_EQ(kept.err.find("the head is new"), std::string::npos) << kept.err;
    const std::string again = other.file("w.safetensors");
    ASSERT_EQ(run_command({"export", "--train_dir=" + other.file("run"), "--output=" + again}).code, kSuccess);
    EXPECT_EQ(core::local_file_system().info(again).size, core::local_file_system().info(weights_).size);
  }
  const CommandResult head = train({"--num_classes=7", "--train_dir="});
  EXPECT_EQ(head.code, kSuccess) << head.err;
  EXPECT_NE(head.err.find("is for 10 classes: the head is new, for 7"), std::string::npos) << head.err;

  const CommandResult other = run_command({"train", "--model=resnet56", "--data_name=cifar10", "--synthetic",
                                           "--train_dir=", "--device=cpu", "--num_batches=1", "--weights=" + weights_});
  EXPECT_EQ(other.code, kUsage);
  EXPECT_NE(other.err.find("weights are not of this model"), std::string::npos) << other.err;
}

// What other programs make of them: tests/program_test.py.
TEST_F(Export, OnnxAndHdf5) {
  const auto content = [&](const std::string& format) {
    const std::string file = temp_.file("model." + format);
    const CommandResult exported =
        run_command({"export", "--train_dir=" + run_, "--format=" + format, "--output=" + file});
    EXPECT_EQ(exported.code, kSuccess) << exported.err;
    EXPECT_NE(exported.out.find("wrote 59 parameters and 38 statistics of resnet20 to " + file), std::string::npos)
        << exported.out;
    return core::local_file_system().read_file(file);
  };
  const std::string onnx = content("onnx");
  EXPECT_EQ(onnx.substr(0, 13), "\x08\x08\x12\ttrainyard");
  for (const char* key : {"trainyard.model", "trainyard.dataset", "trainyard.num_classes"}) {
    EXPECT_NE(onnx.find(key), std::string::npos) << key;
  }
  EXPECT_EQ(onnx.find("trainyard.graph"), std::string::npos) << "the nodes are there as ONNX";
  const auto& parts = core::build_info().optional_parts;
  if (std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.name == "HDF5" && part.built_in; })) {
    EXPECT_EQ(content("hdf5").substr(0, 8), "\x89HDF\r\n\x1a\n");
    content("keras");
    for (const char* format : {"hdf5", "keras"}) {
      const formats::Hdf5File file(temp_.file(std::string("model.") + format));
      EXPECT_EQ(file.text("/", "trainyard.model"), "resnet20") << format;
      EXPECT_EQ(file.text("/", "trainyard.num_classes"), "10") << format;
      EXPECT_FALSE(file.text("/", "trainyard.graph").has_value()) << format << " has the layers as Keras' ones";
    }
  }
  const CommandResult other_layout =
      run_command({"export", "--train_dir=" + run_, "--format=hdf5", "--output=" + temp_.file("a.weights.h5")});
  EXPECT_EQ(other_layout.code, kUsage);
  EXPECT_NE(other_layout.err.find("Keras reads files of this name in another layout"), std::string::npos)
      << other_layout.err;
  const CommandResult folder =
      run_command({"export", "--train_dir=" + run_, "--format=onnx", "--output=" + temp_.file("none/m.onnx")});
  EXPECT_EQ(folder.code, kFailure) << folder.err;
}

TEST_F(Export, SaysWhatIsMissing) {
  EXPECT_EQ(run_command({"export", "--train_dir=" + run_}).code, kUsage);
  EXPECT_EQ(run_command({"export", "--output=" + weights_}).code, kUsage);
  ASSERT_EQ(run_command({"export", "--train_dir=" + run_, "--output=" + weights_}).code, kSuccess);
  const std::string bare = temp_.file("bare.safetensors");
  copy_without_metadata(weights_, bare);
  const CommandResult no_model = run_command({"export", "--weights=" + bare, "--output=" + temp_.file("x")});
  EXPECT_EQ(no_model.code, kUsage);
  EXPECT_NE(no_model.err.find("pass --model"), std::string::npos) << no_model.err;
  const CommandResult classes =
      run_command({"predict", "--weights=" + weights_, "--model=resnet20", "--data_name=cifar10", "--num_classes=12",
                   "--input=" + images_, "--output=" + temp_.file("x")});
  EXPECT_EQ(classes.code, kUsage);
  EXPECT_NE(classes.err.find("pass --num_classes=10"), std::string::npos) << classes.err;
  EXPECT_EQ(run_command({"eval", "--model=resnet20", "--data_name=cifar10"}).code, kUsage);
}

}  // namespace
}  // namespace trainyard::cli::export_test
