// Whole runs on class folders of plain colours, which a small network tells apart without a mistake: an accuracy below
// 1 is a label that stands for another class.
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/weights.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/containers/tar.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::class_names_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

// Red, green, blue: no two look alike.
struct Colour {
  const char* name;
  uint8_t rgb[3];
};
constexpr Colour kColours[] = {{"blue", {0, 0, 255}}, {"green", {0, 255, 0}}, {"red", {255, 0, 0}}};

std::string jpeg_of(const Colour& colour, int i) {
  data::Image image = data::flat_image(28, 28, 0);
  for (size_t p = 0; p < image.pixels.size(); ++p) {
    image.pixels[p] = static_cast<uint8_t>(std::min(255, std::max(0, colour.rgb[p % 3] + (i % 2 == 0 ? -i : i))));
  }
  const auto bytes = data::encode_jpeg(image, 95, data::ChromaSubsampling::k444);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

core::FileSystem& files() {
  return core::local_file_system();
}

void write_folder(const std::string& folder, const Colour& colour, int count) {
  files().make_directories(folder);
  for (int i = 0; i < count; ++i) {
    files().write_file_atomically(core::join_path(folder, fmt::format("{}.jpg", i)), jpeg_of(colour, i));
  }
}

class ClassesOfRuns : public ::testing::Test {
 protected:
  // One run for all tests: it ends at an accuracy of 1.
  static void SetUpTestSuite() {
    shared = new core::TempDir;
    ::setenv("XDG_CACHE_HOME", shared->file("cache").c_str(), 1);
    for (const Colour& colour : kColours) {
      write_folder(shared->file(fmt::format("photos/train/{}", colour.name)), colour, 8);
      write_folder(shared->file(fmt::format("photos/val/{}", colour.name)), colour, 3);
    }
    const CommandResult trained = run_command(arguments("train", shared->file("photos"), shared->file("run")));
    ASSERT_EQ(trained.code, kSuccess) << trained.err;
    EXPECT_EQ(train::read_checkpoint_identity(train::find_checkpoint(shared->file("run"))).num_classes, 3);
  }
  static void TearDownTestSuite() { delete shared; }

  static Arguments arguments(const std::string& command, const std::string& data, const std::string& train_dir,
                             int steps = 40) {
    return {command,
            "--model=lenet",
            "--data_name=imagenet",
            "--data_dir=" + data,
            "--device=cpu",
            "--batch_size=6",
            "--num_warmup_batches=0",
            "--num_batches=" + std::to_string(steps),
            "--nodistortions",
            "--optimizer=tf_nesterov",
            "--init_learning_rate=0.01",
            "--weight_decay=0",
            "--num_intra_threads=1",
            "--train_dir=" + train_dir};
  }
  // Evaluates every image of `data` once.
  CommandResult eval(const std::string& data, const Arguments& more = {}, const std::string& run = "") const {
    Arguments all = arguments("eval", data, run.empty() ? shared->file("run") : run);
    std::erase(all, "--num_batches=40");
    all.push_back("--eval_exact");
    all.insert(all.end(), more.begin(), more.end());
    return run_command(all);
  }
  std::string copy_of_run(const std::string& name = "run") const {
    std::filesystem::copy(shared->file("run"), temp_.file(name), std::filesystem::copy_options::recursive);
    return temp_.file(name);
  }
  std::string copy_of_photos() const {
    std::filesystem::copy(shared->file("photos"), temp_.file("photos"), std::filesystem::copy_options::recursive);
    return temp_.file("photos");
  }

  static core::TempDir* shared;
  core::TempDir temp_;
};
core::TempDir* ClassesOfRuns::shared = nullptr;

TEST_F(ClassesOfRuns, AllClassesAreRight) {
  const CommandResult result = eval(shared->file("photos"));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Accuracy @ 1 = 1.0000 [9 examples]"));
}

// Five guesses among three classes are right.
TEST_F(ClassesOfRuns, TopFiveIsShownFromSixClassesOn) {
  const auto outputs = [&](const std::string& command, const std::string& run, const std::string& classes) {
    Arguments train = arguments(command, shared->file("photos"), temp_.file(run), 2);
    train.insert(train.end(), {"--num_classes=" + classes, "--eval_during_training_every_n_steps=1", "--eval_exact",
                               "--print_training_accuracy", "--summary_verbosity=1", "--save_summaries_steps=1"});
    if (command.empty()) train.erase(train.begin());
    const CommandResult result = run_command(train);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    EXPECT_THAT(result.out, HasSubstr("top_1_accuracy"));
    const std::string table = temp_.file(run + "/metrics.csv");  // which flags alone do not write
    return result.out + (files().exists(table) ? files().read_file(table) : "");
  };
  EXPECT_THAT(outputs("train", "five", "5"), AllOf(Not(HasSubstr("Accuracy @ 5")), Not(HasSubstr("top_5"))));
  EXPECT_THAT(outputs("train", "six", "6"), AllOf(HasSubstr("Accuracy @ 5"), HasSubstr("top_5_accuracy")));
  EXPECT_THAT(outputs("", "flags", "3"), AllOf(HasSubstr("Accuracy @ 5 = 1.0000"), HasSubstr("top_5_accuracy")));
}

TEST_F(ClassesOfRuns, ForwardPassesShowTopFiveFromSixClassesOn) {
  const auto lines = [&](const std::string& command, const std::string& classes) {
    Arguments passes = arguments(command, shared->file("photos"), "", 2);
    passes.insert(passes.end(), {"--num_classes=" + classes, "--forward_only", "--print_training_accuracy"});
    if (command.empty()) passes.erase(passes.begin());
    const CommandResult result = run_command(passes);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    EXPECT_THAT(result.out, HasSubstr("top_1_accuracy"));
    return result.out;
  };
  EXPECT_THAT(lines("train", "5"), Not(HasSubstr("top_5")));
  EXPECT_THAT(lines("train", "6"), HasSubstr("top_5_accuracy"));
  EXPECT_THAT(lines("", "3"), HasSubstr("top_5_accuracy"));
}

TEST_F(ClassesOfRuns, AClassThatIsMissingInValShiftsNoLabel) {
  const std::string photos = copy_of_photos();
  std::filesystem::remove_all(photos + "/val/blue");
  const CommandResult result = eval(photos);
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Accuracy @ 1 = 1.0000"), HasSubstr("[6 examples]")));
  EXPECT_THAT(result.err, HasSubstr("1 of the 3 classes of"));
  // Without the training images, too: the names are the checkpoint's.
  std::filesystem::remove_all(photos + "/train");
  EXPECT_THAT(eval(photos).out, AllOf(HasSubstr("Accuracy @ 1 = 1.0000"), HasSubstr("[6 examples]")));
}

TEST_F(ClassesOfRuns, AClassThatOnlyValHasFailsOrIsSkipped) {
  const std::string photos = copy_of_photos();
  write_folder(photos + "/val/aqua", {"aqua", {0, 255, 255}}, 4);
  const CommandResult refused = eval(photos);
  EXPECT_EQ(refused.code, kUsage);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("1 unknown: 'aqua'"), HasSubstr("'blue', 'green', 'red'")));
  const CommandResult skipped = eval(photos, {"--on_unknown_class=skip"});
  EXPECT_THAT(skipped.out, AllOf(HasSubstr("Accuracy @ 1 = 1.0000"), HasSubstr("[9 examples]")));
  EXPECT_THAT(skipped.err, HasSubstr("4 images of 1 unknown classes are left out: 'aqua'"));
  // The same while training.
  Arguments train = arguments("train", photos, temp_.file("new"), 1);
  train.push_back("--eval_during_training_every_n_steps=1");
  EXPECT_THAT(run_command(train).err, HasSubstr("1 unknown: 'aqua'"));
}

TEST_F(ClassesOfRuns, PredictPrintsTrainingsNames) {
  for (const Colour& colour : kColours) {
    const CommandResult result = run_command({"predict", "--train_dir=" + shared->file("run"), "--top=1",
                                              shared->file(fmt::format("photos/val/{}/0.jpg", colour.name))});
    EXPECT_THAT(result.out, HasSubstr(fmt::format(" {} ", colour.name))) << result.err;
  }
}

TEST_F(ClassesOfRuns, AResumeOnOtherClassesIsRefused) {
  const std::string photos = copy_of_photos(), run = copy_of_run();
  const auto resume = [&] {
    Arguments train = arguments("train", photos, run, 42);
    train.push_back("--eval_during_training_every_n_epochs=0");  // val keeps its classes
    return run_command(train);
  };
  const CommandResult same = resume();
  EXPECT_EQ(same.code, kSuccess) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("no use for them")));
  std::filesystem::rename(photos + "/train/green", photos + "/train/grass");
  const CommandResult renamed = resume();
  EXPECT_EQ(renamed.code, kUsage);
  EXPECT_THAT(renamed.err, HasSubstr("renamed: 'green' is now 'grass'"));
  std::filesystem::rename(photos + "/train/grass", photos + "/train/green");
  write_folder(photos + "/train/aqua", {"aqua", {0, 255, 255}}, 2);
  const CommandResult added = resume();
  EXPECT_EQ(added.code, kUsage);
  EXPECT_THAT(added.err, HasSubstr("(added: 'aqua')"));
  std::filesystem::remove_all(photos + "/train/red");
  EXPECT_THAT(resume().err, HasSubstr("renamed: 'red' is now 'aqua'")) << "as many";
  EXPECT_EQ(train::find_checkpoint(run).global_step, 42) << "nothing was written";
}

// As many outputs as folders; more only when they are asked for, fewer never.
TEST_F(ClassesOfRuns, FoldersDecideTheNumberOfClasses) {
  const auto train = [&](const std::string& classes) {
    Arguments all = arguments("train", shared->file("photos"), temp_.file("run" + classes), 1);
    all.push_back("--num_classes=" + classes);
    return run_command(all);
  };
  const CommandResult few = train("2");
  EXPECT_EQ(few.code, kUsage);
  EXPECT_THAT(few.err, HasSubstr("data set has more classes than the model: expected at most 2, got 3"));
  const CommandResult many = train("7");
  EXPECT_EQ(many.code, kSuccess) << many.err;
  EXPECT_THAT(many.err, HasSubstr("--num_classes=7 with 3 classes: 4 of the outputs are never a label"));
  EXPECT_EQ(eval(shared->file("photos"), {}, temp_.file("run7")).code, kSuccess) << "the checkpoint's number";
}

// In the dialect of tf_cnn_benchmarks, too, and a model with its background class gives predictions their names.
TEST_F(ClassesOfRuns, OutputsBehindTheBackgroundHaveTheirNames) {
  Arguments train = arguments("train", shared->file("photos"), temp_.file("run"));
  train.erase(train.begin());
  train.push_back("--num_classes=1001");
  const CommandResult trained = run_command(train);
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_THAT(eval(shared->file("photos"), {}, temp_.file("run")).out, HasSubstr("Accuracy @ 1 = 1.0000"));
  const CommandResult result =
      run_command({"predict", "--train_dir=" + temp_.file("run"), "--top=1", shared->file("photos/val/blue/0.jpg")});
  EXPECT_THAT(result.out, HasSubstr(": 1 blue ")) << result.err;
}

// A model that names no classes: those of the data must be as many as its outputs.
TEST_F(ClassesOfRuns, WeightsWithoutNamesNeedAllClasses) {
  const std::string photos = copy_of_photos(), weights = temp_.file("w.safetensors"),
                    named = temp_.file("n.safetensors");
  ASSERT_EQ(run_command({"export", "--train_dir=" + shared->file("run"), "--output=" + named}).code, kSuccess);
  copy_without_metadata(named, weights);
  const auto evaluate = [&](const std::string& file, const Arguments& more = {}) {
    Arguments all = {"eval",         "--model=lenet", "--data_name=imagenet", "--data_dir=" + photos,
                     "--device=cpu", "--eval_exact",  "--batch_size=6",       "--weights=" + file};
    all.insert(all.end(), more.begin(), more.end());
    return run_command(all);
  };
  EXPECT_THAT(evaluate(weights).out, HasSubstr("Accuracy @ 1 = 1.0000")) << "as many folders as outputs";
  std::filesystem::remove_all(photos + "/val/blue");
  EXPECT_THAT(evaluate(weights).out, HasSubstr("Accuracy @ 1 = 1.0000")) << "by the training images' names";
  std::filesystem::remove_all(photos + "/train");
  const CommandResult refused = evaluate(weights, {"--num_classes=3"});
  EXPECT_EQ(refused.code, kUsage);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("which class is which output is not known"),
                                 HasSubstr("expected 3 classes, as the model has outputs, got 2: 'green', 'red'")));
  EXPECT_THAT(evaluate(named).out, HasSubstr("Accuracy @ 1 = 1.0000")) << "by the file's own names";
}

// A file of weights knows its model, its names and its input.
TEST_F(ClassesOfRuns, PredictReadsTheFilesMetadata) {
  const std::string run = temp_.file("run"), weights = temp_.file("w.safetensors"),
                    image = shared->file("photos/val/green/0.jpg");
  Arguments train = arguments("train", shared->file("photos"), run, 5);
  train.insert(train.end(), {"--normalization=mean_std", "--eval_resize_size=40", "--resize_antialias"});
  ASSERT_EQ(run_command(train).code, kSuccess);
  ASSERT_EQ(run_command({"export", "--train_dir=" + run, "--output=" + weights}).code, kSuccess);
  const std::string expected = run_command({"predict", "--json", "--train_dir=" + run, image}).out;
  EXPECT_THAT(expected, HasSubstr("\"green\""));
  EXPECT_EQ(run_command({"predict", "--json", "--weights=" + weights, image}).out, expected);
  EXPECT_NE(run_command({"predict", "--json", "--weights=" + weights, "--normalization=symmetric", image}).out,
            expected)
      << "a flag stands over it";
}

// By hand: blue and green folders hold images of their own colour, red's holds three green ones, too.
TEST_F(ClassesOfRuns, EvalTellsTheAccuracyOfEachClass) {
  const std::string photos = copy_of_photos();
  std::filesystem::remove_all(photos + "/val/blue");
  for (int i = 0; i < 3; ++i) {
    files().write_file_atomically(fmt::format("{}/val/red/green{}.jpg", photos, i), jpeg_of(kColours[1], i));
  }
  files().write_file_atomically(photos + "/val/red/bad.jpg", "no image");
  for (const char* replicas : {"1", "2"}) {
    const CommandResult result = eval(photos, {"--on_bad_sample=skip", "--eval_dir=" + temp_.file("eval"),
                                               std::string("--num_gpus=") + replicas, "--eval_batch_size=2"});
    ASSERT_EQ(result.code, kSuccess) << result.err;
    EXPECT_THAT(result.out, HasSubstr("Accuracy by class:\n"
                                      "  green  1.0000  3 of 3\n"
                                      "  red    0.5000  3 of 6\n"));
    const auto json = nlohmann::json::parse(files().read_file(temp_.file("eval/class_accuracy.json")));
    EXPECT_EQ(json["examples"], 9);
    EXPECT_EQ(json["classes"].size(), 3u);
    EXPECT_EQ(json["classes"][0], (nlohmann::json{{"output", 0}, {"name", "blue"}, {"right", 0}, {"total", 0}}));
    EXPECT_EQ(json["classes"][2], (nlohmann::json{{"output", 2}, {"name", "red"}, {"right", 3}, {"total", 6}}));
  }
  // The lines of tf_cnn_benchmarks are all of them there.
  Arguments flags = arguments("--eval", photos, shared->file("run"));
  flags.push_back("--on_bad_sample=skip");
  EXPECT_THAT(run_command(flags).out, Not(HasSubstr("by class")));
}

// Cached pixels keep their labels: they are those of one list of classes.
TEST_F(ClassesOfRuns, ADecodedCacheIsOfOneListOfClasses) {
  const std::string photos = copy_of_photos(), cache = "--decoded_cache_dir=" + temp_.file("cache");
  std::filesystem::remove_all(photos + "/val/blue");
  EXPECT_THAT(eval(photos, {cache}).out, HasSubstr("Accuracy @ 1 = 1.0000"));
  EXPECT_THAT(eval(photos, {cache}).out, HasSubstr("Accuracy @ 1 = 1.0000"));
  // Another model, of two classes, on the same files.
  const std::string two = temp_.file("two");
  files().make_directories(two + "/train");
  for (const char* name : {"green", "red"}) {
    std::filesystem::copy(photos + "/train/" + name, two + "/train/" + name, std::filesystem::copy_options::recursive);
  }
  ASSERT_EQ(run_command(arguments("train", two, temp_.file("run_two"))).code, kSuccess);
  const CommandResult other = eval(photos, {cache}, temp_.file("run_two"));
  EXPECT_EQ(other.code, kUsage);
  EXPECT_THAT(other.err, HasSubstr("cached decoded images are of other data"));
  EXPECT_THAT(eval(photos, {}, temp_.file("run_two")).out, HasSubstr("Accuracy @ 1 = 1.0000"));
}

void write_records(const std::string& path, const std::vector<std::pair<int64_t, std::string>>& labels) {
  files().make_directories(core::parent_path(path));
  formats::TfRecordWriter writer(files().open_write(path));
  for (const auto& [label, text] : labels) {
    formats::ExampleBuilder example;
    example.add_bytes(formats::kImageEncoded, jpeg_of(kColours[static_cast<size_t>(label) % 3], 0));
    example.add_int64(formats::kImageClassLabel, label);
    example.add_bytes(formats::kImageClassText, text);
    writer.write(example.build());
  }
  writer.close();
}

// TFRecords number their classes themselves; what they call them must agree.
TEST_F(ClassesOfRuns, TfRecordsThatContradictTheTrainingAreAnError) {
  const std::string data = temp_.file("records"), run = temp_.file("run");
  write_records(data + "/train-00000-of-00001", {{1, "blue"}, {2, "green"}, {3, "red"}});
  write_records(data + "/validation-00000-of-00001", {{1, "blue"}, {2, "red"}});
  Arguments train = arguments("train", data, run, 2);
  train.insert(train.begin() + 1, "--eval_during_training_every_n_epochs=0");
  ASSERT_EQ(run_command(train).code, kSuccess);
  const CommandResult result = eval(data, {}, run);
  EXPECT_EQ(result.code, kUsage) << result.out;
  EXPECT_THAT(result.err, AllOf(HasSubstr("label 2 stands for two classes"), HasSubstr("validation-00000-of-00001 at"),
                                HasSubstr("'green', as in the training of"), HasSubstr("'red'")));
  train.back() = "--train_dir=" + temp_.file("both");
  train.erase(train.begin() + 1);
  train.push_back("--eval_during_training_every_n_steps=1");
  EXPECT_THAT(run_command(train).err, AllOf(HasSubstr("train-00000-of-00001 at"), HasSubstr("stands for two classes")));
  write_records(data + "/validation-00000-of-00001", {{1, "blue"}, {3, "red"}});
  EXPECT_EQ(eval(data, {}, run).code, kSuccess);
  write_records(data + "/validation-00000-of-00001", {{1, "blue"}, {7, "red"}});
  EXPECT_THAT(eval(data, {}, run).err, HasSubstr("class 'red' has two labels"));
  // Records may contradict each other about a label that the training does not know.
  write_records(data + "/validation-00000-of-00001", {{1, "blue"}, {9, "pink"}, {9, "grey"}});
  EXPECT_THAT(eval(data, {}, run).err, AllOf(HasSubstr("label 9 stands for two classes"), HasSubstr("'pink'")));
  // Predictions have the records' names.
  const CommandResult predicted =
      run_command({"predict", "--train_dir=" + run, "--top=1000", shared->file("photos/val/blue/0.jpg")});
  EXPECT_THAT(predicted.out, HasSubstr(" 3 red "));
}

// A file has the names that the records of its training have, and is evaluated on records as the checkpoint is.
TEST_F(ClassesOfRuns, AnExportedFileHasTheNamesOfRecords) {
  const std::string data = temp_.file("records"), run = temp_.file("run");
  write_records(data + "/train-00000-of-00001", {{1, "blue"}, {2, "green"}, {3, "red"}});
  write_records(data + "/validation-00000-of-00001", {{1, "blue"}, {3, "red"}});
  Arguments train = arguments("train", data, run, 2);
  train.insert(train.begin() + 1, "--eval_during_training_every_n_epochs=0");
  ASSERT_EQ(run_command(train).code, kSuccess);
  std::string model = "--train_dir=" + run;
  for (const char* name : {"a.safetensors", "b.safetensors"}) {  // b: the copy of a copy
    const std::string file = temp_.file(name);
    const CommandResult exported = run_command({"export", model, "--output=" + file});
    ASSERT_EQ(exported.code, kSuccess) << exported.err;
    model = "--weights=" + file;
    const CommandResult predicted =
        run_command({"predict", model, "--top=1000", shared->file("photos/val/blue/0.jpg")});
    EXPECT_THAT(predicted.out, AllOf(HasSubstr(" 1 blue "), HasSubstr(" 3 red "))) << name << predicted.err;
  }
  EXPECT_EQ(files().read_file(temp_.file("a.safetensors")), files().read_file(temp_.file("b.safetensors")));
  const auto evaluated = [&] {
    return run_command({"eval", model, "--data_dir=" + data, "--data_name=imagenet", "--device=cpu", "--batch_size=2"});
  };
  EXPECT_EQ(evaluated().code, kSuccess) << evaluated().err;
  write_records(data + "/validation-00000-of-00001", {{1, "blue"}, {2, "red"}});
  EXPECT_THAT(evaluated().err, AllOf(HasSubstr("label 2 stands for two classes"), HasSubstr("'green'")));
  const std::string onnx = temp_.file("a.onnx");
  ASSERT_EQ(run_command({"export", model, "--format=onnx", "--output=" + onnx}).code, kSuccess);
  EXPECT_THAT(files().read_file(onnx), HasSubstr(R"("of_records":true)"));
}

// The model learned folders in this order; a shard's numbers may mean anything.
TEST_F(ClassesOfRuns, RecordsOfAnotherNumberOfClassesAreRefused) {
  const std::string data = temp_.file("records");
  write_records(data + "/validation-00000-of-00001", {{1, "blue"}});
  const CommandResult result = eval(data);
  EXPECT_EQ(result.code, kUsage);
  EXPECT_THAT(result.err, HasSubstr("one has names, the other numbers"));
  const CommandResult resumed = [&] {
    write_records(data + "/train-00000-of-00001", {{1, "blue"}});
    Arguments train = arguments("train", data, copy_of_run(), 42);
    train.push_back("--num_classes=3");
    return run_command(train);
  }();
  EXPECT_EQ(resumed.code, kUsage);
  EXPECT_THAT(resumed.err, HasSubstr("one has names, the other numbers"));
}

TEST_F(ClassesOfRuns, AWebDatasetWithNamesIsNumberedByTraining) {
  const auto write_tar = [&](const std::string& name, const std::vector<int>& colours) {
    files().make_directories(temp_.file("web"));
    formats::TarWriter writer(files().open_write(temp_.file("web/" + name)));
    for (size_t i = 0; i < colours.size(); ++i) {
      const Colour& colour = kColours[colours[i]];
      writer.write(fmt::format("{:03}.jpg", i), jpeg_of(colour, static_cast<int>(i)));
      writer.write(fmt::format("{:03}.cls", i), colour.name);
    }
    writer.close();
  };
  write_tar("train-0.tar", {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2});
  write_tar("val-0.tar", {1, 2, 1});
  ASSERT_EQ(run_command(arguments("train", temp_.file("web"), temp_.file("run"))).code, kSuccess);
  EXPECT_THAT(eval(temp_.file("web"), {}, temp_.file("run")).out,
              AllOf(HasSubstr("Accuracy @ 1 = 1.0000"), HasSubstr("[3 examples]")));
  // The same classes in folders: the same labels.
  EXPECT_THAT(eval(shared->file("photos"), {}, temp_.file("run")).out, HasSubstr("Accuracy @ 1 = 1.0000"));
}

TEST_F(ClassesOfRuns, ShowPrintsTrainingsLabels) {
  const std::string photos = copy_of_photos();
  std::filesystem::remove_all(photos + "/val/blue");
  const CommandResult shown =
      run_command({"data", "show", "--data_name=imagenet", "--data_dir=" + photos, "--subset=validation", "--count=1",
                   "--image_size=28", "--output=" + temp_.file("sheet.png")});
  EXPECT_THAT(shown.out, HasSubstr("label 1 green")) << shown.err;
}

}  // namespace
}  // namespace trainyard::cli::class_names_test
