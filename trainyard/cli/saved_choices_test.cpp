// What a model was trained on travels with it: train, eval, predict, export and a resumed training see the same images
// without a flag, and say so where a flag asks for something else.
#include <filesystem>
#include <regex>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::cli::saved_choices_test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

constexpr int kValidationImages = 60;
constexpr const char* kClasses[] = {"ash", "birch", "cedar"};

core::FileSystem& files() {
  return core::local_file_system();
}

// Colours around those of all classes, so that many images lie near a border: another way to see them is another
// answer.
std::string photo(int label, int i) {
  data::Image image = data::noisy_image(60 + i % 7, 50 + i % 11, static_cast<uint64_t>(100 * label + i));
  for (size_t p = 0; p < image.pixels.size(); ++p) {
    const int channel = static_cast<int>(p % 3), colour = channel == label ? 120 + (i * 37) % 90 : 80 + (i * 53) % 90;
    image.pixels[p] = static_cast<uint8_t>((colour * 3 + image.pixels[p]) / 4);
  }
  const auto bytes = data::encode_jpeg(image, 95, data::ChromaSubsampling::k444);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void write_photos(const std::string& folder, int each) {
  for (int label = 0; label < 3; ++label) {
    const std::string of_class = core::join_path(folder, kClasses[label]);
    files().make_directories(of_class);
    for (int i = 0; i < each; ++i) {
      files().write_file_atomically(core::join_path(of_class, fmt::format("{}.jpg", i)), photo(label, i + each));
    }
  }
}

// All accuracies that the text tells, in order, as they are printed.
std::vector<std::string> accuracies(const std::string& text) {
  std::vector<std::string> found;
  const std::regex line("Accuracy @ 1 = ([0-9.]+)");
  for (std::sregex_iterator each(text.begin(), text.end(), line), end; each != end; ++each) found.push_back((*each)[1]);
  return found;
}

class SavedChoicesOfRuns : public ::testing::Test {
 protected:
  // One training for all tests, which only read it: with an input of its own, and an average that its evaluations
  // leave alone.
  static void SetUpTestSuite() {
    shared = new core::TempDir;
    ::setenv("XDG_CACHE_HOME", shared->file("cache").c_str(), 1);
    write_photos(shared->file("photos/train"), 16);
    write_photos(shared->file("photos/val"), kValidationImages / 3);
    const CommandResult trained = run_command({"train",
                                               "--model=lenet",
                                               "--data_dir=" + photos(),
                                               "--device=cpu",
                                               "--batch_size=8",
                                               "--num_epochs=4",
                                               "--num_warmup_batches=0",
                                               "--input_preprocessor=torchvision",
                                               "--image_size=32",
                                               "--eval_resize_size=40",
                                               "--resize_method=bicubic",
                                               "--normalization=mean_std",
                                               "--image_mean=30,140,200",
                                               "--optimizer=tf_nesterov",
                                               "--init_learning_rate=0.02",
                                               "--ema_decay=0.99",
                                               "--weights_of=last",
                                               "--eval_during_training_every_n_epochs=1",
                                               "--keep_best=top_1",
                                               "--existing_run=keep",
                                               "--num_intra_threads=1",
                                               "--train_dir=" + run()});
    ASSERT_EQ(trained.code, kSuccess) << trained.err;
    said = accuracies(trained.out);
    ASSERT_EQ(said.size(), 4U) << trained.out;
  }
  static void TearDownTestSuite() { delete shared; }

  static std::string photos() { return shared->file("photos"); }
  static std::string run() { return shared->file("run"); }
  static CommandResult eval(const Arguments& more) {
    Arguments all = {"eval", "--data_dir=" + photos(), "--device=cpu", "--num_intra_threads=1"};
    all.insert(all.end(), more.begin(), more.end());
    return run_command(all);
  }
  // The accuracy of predictions of the validation photos, as an evaluation prints it.
  static std::string predicted(const Arguments& model) {
    Arguments all = {"predict", "--json", "--top=1", photos() + "/val"};
    all.insert(all.end(), model.begin(), model.end());
    const CommandResult result = run_command(all);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    std::istringstream lines(result.out);
    int images = 0, right = 0;
    for (std::string line; std::getline(lines, line); ++images) {
      const auto json = nlohmann::json::parse(line);
      const std::string folder = core::base_name(core::parent_path(json["image"].get<std::string>()));
      right += json["top"][0]["name"] == folder ? 1 : 0;
    }
    EXPECT_EQ(images, kValidationImages);
    return fmt::format("{:.4f}", static_cast<double>(right) / images);
  }
  std::string copy_of_run() const {
    std::filesystem::copy(run(), temp_.file("run"), std::filesystem::copy_options::recursive);
    return temp_.file("run");
  }
  std::string exported(const Arguments& more = {}) const {
    Arguments all = {"export", "--train_dir=" + run(), "--output=" + temp_.file("w.safetensors")};
    all.insert(all.end(), more.begin(), more.end());
    const CommandResult result = run_command(all);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return temp_.file("w.safetensors");
  }

  static core::TempDir* shared;
  static std::vector<std::string> said;  // by the training's own evaluations
  core::TempDir temp_;
};
core::TempDir* SavedChoicesOfRuns::shared = nullptr;
std::vector<std::string> SavedChoicesOfRuns::said;

TEST_F(SavedChoicesOfRuns, EvaluationsScoreWhatTheTrainingDid) {
  const CommandResult last = eval({"--train_dir=" + run()});
  EXPECT_EQ(last.code, kSuccess) << last.err;
  EXPECT_EQ(accuracies(last.out), std::vector<std::string>{said.back()}) << last.err;
  EXPECT_THAT(last.err, AllOf(HasSubstr("taken from"), HasSubstr("--model=lenet"), HasSubstr("--image_size=32x32"),
                              HasSubstr("--input_preprocessor=torchvision"), Not(HasSubstr("instead of"))));
  // The best one, by its own folder and as weights.
  const train::CheckpointFacts best = train::read_checkpoint_facts(train::find_checkpoint(run() + "/best"));
  const std::string expected = fmt::format("{:.4f}", best.best->value);
  EXPECT_THAT(said, ::testing::Contains(expected));
  for (const char* flag : {"--weights=", "--train_dir="}) {
    const CommandResult result = eval({flag + run() + "/best"});
    EXPECT_EQ(accuracies(result.out), std::vector<std::string>{expected}) << flag << result.err;
  }
  // The flags of the training do no harm, and are no difference.
  const CommandResult same =
      eval({"--train_dir=" + run(), "--model=lenet", "--input_preprocessor=torchvision", "--image_size=32",
            "--eval_resize_size=40", "--resize_method=bicubic", "--normalization=mean_std", "--image_mean=30,140,200"});
  EXPECT_EQ(accuracies(same.out), std::vector<std::string>{said.back()});
  EXPECT_THAT(same.err, Not(HasSubstr("instead of")));
}

TEST_F(SavedChoicesOfRuns, AFlagThatDiffersWinsAndIsSaid) {
  const CommandResult other = eval({"--train_dir=" + run(), "--input_preprocessor=default", "--image_size=32"});
  EXPECT_EQ(other.code, kSuccess) << other.err;
  EXPECT_NE(accuracies(other.out), std::vector<std::string>{said.back()}) << "the images are to tell inputs apart";
  EXPECT_EQ(count_lines(other.err, "made otherwise than .*model\\.ckpt"), 1) << other.err;
  EXPECT_THAT(other.err, AllOf(HasSubstr("resize_method is bilinear instead of bicubic"),
                               HasSubstr("eval_resize_size is 0 instead of 40"),
                               HasSubstr("normalization is symmetric instead of mean_std")));
  const CommandResult average = eval({"--train_dir=" + run(), "--weights_of=average"});
  EXPECT_THAT(average.err, HasSubstr("took its last weights; the averaged ones are taken, as --weights_of says"));
  EXPECT_THAT(eval({"--train_dir=" + run(), "--model=alexnet"}).err,
              AllOf(HasSubstr("checkpoint of another model"), HasSubstr("--model=lenet")));
}

TEST_F(SavedChoicesOfRuns, PredictionsAndExportsAgree) {
  EXPECT_EQ(predicted({"--train_dir=" + run()}), said.back());
  const std::string file = exported();
  EXPECT_EQ(predicted({"--weights=" + file}), said.back());
  const CommandResult of_file = eval({"--weights=" + file});
  EXPECT_EQ(of_file.code, kSuccess) << of_file.err;
  EXPECT_EQ(accuracies(of_file.out), std::vector<std::string>{said.back()}) << of_file.err;
  // predict has the flags of eval.
  const Arguments image = {"--train_dir=" + run(), photos() + "/val/ash/0.jpg"};
  const auto predict = [&](Arguments more) {
    more.insert(more.begin(), "predict");
    more.insert(more.end(), image.begin(), image.end());
    return run_command(more);
  };
  const CommandResult plain = predict({}), other = predict({"--input_preprocessor=default"});
  EXPECT_EQ(other.code, kSuccess) << other.err;
  EXPECT_NE(plain.out, other.out);
  EXPECT_THAT(other.err, HasSubstr("eval_resize_size is 0 instead of 40"));
  EXPECT_THAT(predict({"--input_preprocessor=slim"}).err, HasSubstr("torchvision"));
}

TEST_F(SavedChoicesOfRuns, ResumedTrainingsContinueWithThem) {
  const std::string own = copy_of_run();
  const train::CheckpointFacts before = train::read_checkpoint_facts(train::find_checkpoint(own));
  const Arguments resume = {"train",
                            "--data_dir=" + photos(),
                            "--device=cpu",
                            "--batch_size=8",
                            "--num_epochs=5",
                            "--num_warmup_batches=0",
                            "--optimizer=tf_nesterov",
                            "--ema_decay=0.99",
                            "--existing_run=keep",
                            "--num_intra_threads=1",
                            "--train_dir=" + own};
  const CommandResult resumed = run_command(resume);
  ASSERT_EQ(resumed.code, kSuccess) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("lenet"));
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("--model=lenet"), HasSubstr("--weights_of=last")));
  const train::CheckpointFacts after = train::read_checkpoint_facts(train::find_checkpoint(own));
  EXPECT_EQ(after.identity.model, "lenet");
  EXPECT_EQ(after.image_size, before.image_size);
  EXPECT_EQ(after.preprocessor, "torchvision");
  EXPECT_EQ(after.input->normalization, before.input->normalization);
  EXPECT_EQ(after.input->eval_resize_size, 40);
  EXPECT_EQ(after.input->resize_convention, data::ResizeConvention::kTorchvision);
  EXPECT_EQ(after.averaged_weights, false);
  // A flag that differs.
  const CommandResult other = run_command(with_flags(resume, {"--num_epochs=6", "--normalization=symmetric"}));
  EXPECT_EQ(other.code, kSuccess) << other.err;
  EXPECT_THAT(other.err, HasSubstr("normalization is symmetric instead of mean_std"));
}

TEST_F(SavedChoicesOfRuns, FineTuningBeginsWithThem) {
  const std::string file = exported();
  const CommandResult tuned =
      run_command({"train", "--weights=" + file, "--data_dir=" + photos(), "--device=cpu", "--batch_size=8",
                   "--num_batches=1", "--num_warmup_batches=0", "--num_intra_threads=1", "--existing_run=keep",
                   "--train_dir=" + temp_.file("second")});
  ASSERT_EQ(tuned.code, kSuccess) << tuned.err;
  const train::CheckpointFacts facts = train::read_checkpoint_facts(train::find_checkpoint(temp_.file("second")));
  EXPECT_EQ(facts.identity.model, "lenet");
  EXPECT_EQ(facts.image_size, nn::Size2d(32));
  EXPECT_EQ(facts.input->resize_method, "bicubic");
  EXPECT_EQ(facts.preprocessor, "torchvision");
}

// The classes, the last weights and the averaged ones.
TEST_F(SavedChoicesOfRuns, FilesSayWhatTheyAre) {
  const std::string last = files().read_file(exported());
  EXPECT_EQ(files().read_file(exported({"--weights_of=last"})), last);
  EXPECT_NE(files().read_file(exported({"--weights_of=average"})), last);
  const CommandResult none = eval({"--train_dir=" + temp_.file("nothing")});
  EXPECT_EQ(none.code, kFailure);
  EXPECT_THAT(none.err, HasSubstr("No checkpoint file found in dir:" + temp_.file("nothing")));
  const CommandResult unnamed = eval({"--weights=" + temp_.file("missing.safetensors")});
  EXPECT_THAT(unnamed.err, HasSubstr("no such checkpoint, directory or file of weights"));
}

}  // namespace
}  // namespace trainyard::cli::saved_choices_test
