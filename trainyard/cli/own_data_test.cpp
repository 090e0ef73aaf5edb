// Whole runs on data as people have them: without a validation set, with a table of labels, with classes of different
// sizes, with several labels an image. Images are plain colours, which a small network tells apart.
#include <cstdlib>
#include <filesystem>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::cli::own_data_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

class OwnData : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cache = new core::TempDir;
    ::setenv("XDG_CACHE_HOME", cache->file("cache").c_str(), 1);
  }
  static void TearDownTestSuite() { delete cache; }

  void write_image(const std::string& path, bool red, bool blue, int i) {
    data::Image image = data::flat_image(28, 28, 0);
    for (size_t p = 0; p < image.pixels.size(); ++p) {
      const bool on = p % 3 == 0 ? red : p % 3 == 2 ? blue : false;
      image.pixels[p] = static_cast<uint8_t>(on ? 255 - i % 20 : i % 20);
    }
    const auto bytes = data::encode_png(image);
    files_.make_directories(core::parent_path(temp_.file(path)));
    files_.write_file_atomically(temp_.file(path), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  void write_folders(int red, int blue) {
    for (int i = 0; i < red; ++i) write_image(fmt::format("photos/red/{:02}.png", i), true, false, i);
    for (int i = 0; i < blue; ++i) write_image(fmt::format("photos/blue/{:02}.png", i), false, true, i);
  }
  // Images flat/00.png and so on, of no colour, red, blue, both; and a table of their labels.
  void write_table() {
    std::string table = "file,labels\n";
    for (int i = 0; i < 40; ++i) {
      const bool red = i % 2 == 1, blue = i % 4 >= 2;
      const std::string name = fmt::format("{:02}.png", i);
      write_image("flat/" + name, red, blue, i);
      table += fmt::format("{},{}{}{}\n", name, red ? "red" : "", red && blue ? ";" : "", blue ? "blue" : "");
    }
    files_.write_file_atomically(temp_.file("labels.csv"), table);
  }
  CommandResult run_on(const std::string& command, const std::string& data, const Arguments& more) {
    Arguments all{command, "--data_dir=" + temp_.file(data), "--train_dir=" + temp_.file("run"), "--device=cpu",
                  "--num_intra_threads=1"};
    if (command == "train") {
      const Arguments training{
          "--model=lenet",    "--batch_size=8",          "--num_warmup_batches=0",    "--nodistortions",
          "--weight_decay=0", "--optimizer=tf_nesterov", "--init_learning_rate=0.01", "--num_epochs=6"};
      all.insert(all.end(), training.begin(), training.end());
    }
    return run_command(with_flags(all, more));
  }
  train::CheckpointFacts facts() { return train::read_checkpoint_facts(train::find_checkpoint(temp_.file("run"))); }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
  static core::TempDir* cache;
};
core::TempDir* OwnData::cache = nullptr;

TEST_F(OwnData, ADivisionIsRemembered) {
  write_folders(20, 12);
  const CommandResult trained = run_on("train", "photos", {"--validation_split=0.25"});
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_THAT(trained.err, AllOf(HasSubstr("25 % of each class, by a hash of the images' names, is for validation"),
                                 HasSubstr("24 of 32 images are train images")));
  EXPECT_THAT(trained.out, HasSubstr("[8 examples]"));
  EXPECT_EQ(facts().division, data::Division{.validation = 0.25});
  // An evaluation, and a training that goes on, divide the images as the training did.
  const CommandResult evaluated = run_on("eval", "photos", {});
  ASSERT_EQ(evaluated.code, kSuccess) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("[8 examples]"));
  EXPECT_THAT(evaluated.err, HasSubstr("divided as the training divided them: --validation_split=0.25"));
  const CommandResult resumed = run_on("train", "photos", {"--num_epochs=7"});
  ASSERT_EQ(resumed.code, kSuccess) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("24 of 32 images are train images"));
  EXPECT_EQ(facts().division, data::Division{.validation = 0.25});
  // Another division would train on images that measured the run.
  const CommandResult other = run_on("train", "photos", {"--num_epochs=8", "--folds=4", "--fold=0"});
  EXPECT_NE(other.code, kSuccess);
  EXPECT_THAT(other.err, AllOf(HasSubstr("divides its images in another way"), HasSubstr("--validation_split=0.25"),
                               HasSubstr("--folds=4 --fold=0")));
  const CommandResult differently = run_on("eval", "photos", {"--validation_split=0.5"});
  ASSERT_EQ(differently.code, kSuccess) << differently.err;
  EXPECT_THAT(differently.out, HasSubstr("[16 examples]"));
  EXPECT_THAT(differently.err, HasSubstr("may have images that were trained on"));
  // All images, where they are asked for.
  EXPECT_THAT(run_on("eval", "photos", {"--nosplit_class_folders"}).out, HasSubstr("[32 examples]"));
}

TEST_F(OwnData, FlagsThatContradictEachOtherAreRefused) {
  write_folders(6, 6);
  const auto refusal = [&](const Arguments& more) {
    const CommandResult result = run_on("train", "photos", more);
    EXPECT_EQ(result.code, kUsage) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"--validation_split=0.2", "--folds=3", "--fold=0"}), HasSubstr("in two ways"));
  EXPECT_THAT(refusal({"--folds=3"}), HasSubstr("add --fold"));
  EXPECT_THAT(refusal({"--fold=1"}), HasSubstr("--fold without --folds"));
  EXPECT_THAT(refusal({"--folds=3", "--fold=3"}), HasSubstr("0 to 2"));
  EXPECT_THAT(refusal({"--validation_split=1"}), HasSubstr("validation_split"));
  EXPECT_THAT(refusal({"--validation_split=0.2", "--nosplit_class_folders"}), HasSubstr("divides nothing"));
  EXPECT_THAT(refusal({"--class_weights=balanced", "--balanced_sampling"}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"--on_unlabelled_file=skip"}), HasSubstr("add --labels_csv"));
}

TEST_F(OwnData, ClassesOfDifferentSizesAreBalanced) {
  write_folders(30, 3);
  const auto output = [&](const std::string& run, const Arguments& more) {
    const CommandResult result =
        run_on("train", "photos", with_flags({"--nosplit_class_folders", "--train_dir=" + temp_.file(run)}, more));
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return result.out;
  };
  const auto tensors = [&](const std::string& run) {
    return files_.read_file(core::join_path(train::find_checkpoint(temp_.file(run)).path, "tensors.bin"));
  };
  for (const char* run : {"plain", "again"}) output(run, {});
  ASSERT_TRUE(tensors("again") == tensors("plain")) << "the same run has other bits";
  for (const char* flag : {"--class_weights=balanced", "--balanced_sampling"}) {
    const std::string out = output(flag + 2, {flag});
    EXPECT_THAT(out, HasSubstr("Accuracy @ 1 = 1.0000")) << flag;
    EXPECT_EQ(count_lines(out, "^Evaluate: +trainyard eval --train_dir=.* --nosplit_class_folders$"), 1);
    EXPECT_FALSE(tensors(flag + 2) == tensors("plain")) << flag << " changes nothing";
  }
  EXPECT_THAT(run_on("eval", "photos", {"--class_weights=balanced"}).err, HasSubstr("is for trainings"));
}

TEST_F(OwnData, ATableHasTheLabels) {
  write_folders(10, 10);
  std::string table = "label,file\n";
  for (int i = 0; i < 10; ++i) table += fmt::format("warm,red/{0:02}.png\ncold,blue/{0:02}.png\n", i);
  files_.write_file_atomically(temp_.file("labels.csv"), table);
  const Arguments labels{"--labels_csv=" + temp_.file("labels.csv")};
  const CommandResult trained = run_on("train", "photos", labels);
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("Accuracy @ 1 = 1.0000 [4 examples]"));
  EXPECT_EQ(facts().classes, (std::vector<std::string>{"cold", "warm"}));
  EXPECT_THAT(trained.out, HasSubstr("trainyard eval --train_dir=" + temp_.file("run") +
                                     " --data_dir=" + temp_.file("photos") + " " + labels[0] + "\n"));
  EXPECT_THAT(run_on("eval", "photos", labels).out, HasSubstr("Accuracy @ 1 = 1.0000 [4 examples]"));
  // The folders are of other classes than the checkpoint.
  EXPECT_THAT(run_on("eval", "photos", {}).err, HasSubstr("'red'"));
}

TEST_F(OwnData, AnImageHasSeveralLabels) {
  write_table();
  const Arguments labels{"--labels_csv=" + temp_.file("labels.csv")};
  const CommandResult trained = run_on("train", "flat", with_flags({"--num_epochs=30"}, labels));
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("40 images of 2 classes, any number of them an image"));
  EXPECT_THAT(trained.out, AllOf(HasSubstr("Mean average precision = 1.0000"), Not(HasSubstr("Accuracy @ 1"))));
  EXPECT_TRUE(facts().label_sets);
  EXPECT_TRUE(files_.exists(temp_.file("run/best")));
  const CommandResult evaluated = run_on("eval", "flat", labels);
  ASSERT_EQ(evaluated.code, kSuccess) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("Mean average precision = 1.0000"));
  // Probabilities of a model of labels that do not exclude each other: both are likely, or neither is.
  const auto probability = [&](const std::string& image, const std::string& name) {
    const CommandResult predicted =
        run_command({"predict", "--train_dir=" + temp_.file("run"), "--json", temp_.file(image)});
    EXPECT_EQ(predicted.code, kSuccess) << predicted.err;
    const auto line = nlohmann::json::parse(predicted.out);
    for (const auto& top : line["top"]) {
      if (top["name"] == name) return top["probability"].get<double>();
    }
    return -1.0;
  };
  EXPECT_GT(probability("flat/03.png", "red"), 0.5);
  EXPECT_GT(probability("flat/03.png", "blue"), 0.5);
  EXPECT_LT(probability("flat/00.png", "red"), 0.5);
  EXPECT_LT(probability("flat/00.png", "blue"), 0.5);
  const CommandResult shown =
      run_command({"data", "show", "--data_dir=" + temp_.file("flat"), labels[0], "--nosplit_class_folders",
                   "--subset=validation", "--count=4", "--image_size=28", "--output=" + temp_.file("sheet.png")});
  ASSERT_EQ(shown.code, kSuccess) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("sample 0, no label: "), HasSubstr("sample 1, labels 1 red: "),
                               HasSubstr("sample 2, labels 0 blue: "), HasSubstr("sample 3, labels 0 blue, 1 red: ")));
  // Flags of one label an image are refused, and data of another kind.
  for (const char* flag : {"--label_smoothing=0.1", "--loss=bce", "--mixup_alpha=1", "--class_weights=balanced",
                           "--balanced_sampling", "--print_training_accuracy"}) {
    const CommandResult refused = run_on("train", "flat", {labels[0], flag, "--train_dir=" + temp_.file("other")});
    EXPECT_NE(refused.code, kSuccess) << flag;
    EXPECT_THAT(refused.err, HasSubstr("one label")) << flag;
  }
}

// Evaluations of several labels an image have no top-1 accuracy, by which trainings otherwise end early.
TEST_F(OwnData, SeveralLabelsEndATrainingByTheirPrecision) {
  write_table();
  const std::string labels = "--labels_csv=" + temp_.file("labels.csv");
  for (const std::string flag : {"--keep_best=none", "--early_stop_metric=top_1"}) {
    const std::string train_dir = temp_.file(flag.substr(2));
    const CommandResult trained = run_on(
        "train", "flat", {labels, flag, "--early_stop=1", "--early_stop_min_delta=100", "--train_dir=" + train_dir});
    ASSERT_EQ(trained.code, kSuccess) << flag << trained.err;
    EXPECT_EQ(train::find_checkpoint(train_dir).global_step, 8) << flag << ", two of six epochs";
  }
}

}  // namespace
}  // namespace trainyard::cli::own_data_test
