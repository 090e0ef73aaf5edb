// What `trainyard eval` and a training explain of an evaluation: files, numbers and lines, on photographs of plain
// colours of which some lie in the folder of another class.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::cli::evaluation_test {
namespace {

using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not, ::testing::UnorderedElementsAre;

// A name that a table, a page and a drawing each take for something else.
constexpr const char* kHostile = "<b>,\"x\"";

constexpr const char* kFiles[] = {"evaluation.json", "confusion.csv",   "confusion.svg",
                                  "per_class.csv",   "calibration.svg", "most_wrong.png"};

core::FileSystem& files() {
  return core::local_file_system();
}

// An image of 40 x 28 pixels: the left half bright in the colour's channel, the right half dark.
std::string jpeg_of(size_t channel, int i) {
  data::Image image = data::flat_image(28, 40, 20);
  for (size_t p = 0; p < image.pixels.size(); ++p) {
    if (p % 3 == channel) image.pixels[p] = static_cast<uint8_t>((p / 3 % 40 < 20 ? 240 : 140) - 2 * i);
  }
  const auto bytes = data::encode_jpeg(image, 95, data::ChromaSubsampling::k444);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ExplainedEvaluation : public ::testing::Test {
 protected:
  // The network tells the colours apart; two blue images of the validation set lie among the red ones.
  static void SetUpTestSuite() {
    shared = new core::TempDir;
    ::setenv("XDG_CACHE_HOME", shared->file("cache").c_str(), 1);
    const std::vector<std::string> names = {kHostile, "blue", "red"};
    const std::vector<size_t> channels = {1, 2, 0};
    for (size_t c = 0; c < names.size(); ++c) {
      for (const auto& [subset, count] : {std::pair{"train", 8}, {"val", 3}}) {
        const std::string folder = shared->file(fmt::format("photos/{}/{}", subset, names[c]));
        files().make_directories(folder);
        for (int i = 0; i < count; ++i) {
          files().write_file_atomically(core::join_path(folder, fmt::format("{}.jpg", i)), jpeg_of(channels[c], i));
        }
      }
    }
    for (const int i : {5, 6}) {
      files().write_file_atomically(shared->file(fmt::format("photos/val/red/blue{}.jpg", i)), jpeg_of(2, i));
    }
    trained = run_command(arguments("train", shared->file("run"),
                                    {"--num_batches=40", "--eval_during_training_every_n_steps=20", "--top_k=2"}));
    ASSERT_EQ(trained.code, kSuccess) << trained.err;
  }
  static void TearDownTestSuite() { delete shared; }

  static Arguments arguments(const std::string& command, const std::string& run, const Arguments& more = {}) {
    return with_flags({command, "--model=lenet", "--data_name=imagenet", "--data_dir=" + shared->file("photos"),
                       "--device=cpu", "--batch_size=6", "--num_warmup_batches=0", "--nodistortions",
                       "--optimizer=tf_nesterov", "--init_learning_rate=0.01", "--weight_decay=0",
                       "--num_intra_threads=1", "--deterministic", "--train_dir=" + run, "--progress=off"},
                      more);
  }
  CommandResult eval(const Arguments& more) const {
    return run_command(arguments("eval", shared->file("run"), with_flags({"--eval_dir=" + temp_.file("eval")}, more)));
  }
  nlohmann::json said(const std::string& folder) const {
    return nlohmann::json::parse(files().read_file(core::join_path(folder, "evaluation.json")));
  }

  static core::TempDir* shared;
  static CommandResult trained;
  core::TempDir temp_;
};
core::TempDir* ExplainedEvaluation::shared = nullptr;
CommandResult ExplainedEvaluation::trained;

void expect_the_truth(const nlohmann::json& json) {
  EXPECT_EQ(json.at("images"), 11);
  EXPECT_NEAR(json.at("top_1").get<double>(), 9.0 / 11, 1e-12);
  EXPECT_EQ(json.at("classes"), (nlohmann::json{kHostile, "blue", "red"}));
  EXPECT_EQ(json.at("confusion"), (nlohmann::json{{3, 0, 0}, {0, 3, 0}, {0, 2, 3}}));
  EXPECT_EQ(json.at("per_class")[1].at("precision"), 0.6);
  EXPECT_EQ(json.at("per_class")[2].at("recall"), 0.6);
  EXPECT_EQ(json.at("per_class")[2].at("images"), 5);
  int64_t counted = 0;
  double error = 0;
  for (const nlohmann::json& bin : json.at("calibration").at("bins")) {
    counted += bin.at("images").get<int64_t>();
    error += bin.at("images").get<double>() / 11 *
             std::abs(bin.at("accuracy").get<double>() - bin.at("confidence").get<double>());
  }
  EXPECT_EQ(counted, 11);
  EXPECT_NEAR(json.at("calibration").at("ece").get<double>(), error, 1e-12);
  std::set<std::string> wrong;
  for (const nlohmann::json& each : json.at("most_wrong")) {
    wrong.insert(std::filesystem::path(each.at("file").get<std::string>()).filename());
    EXPECT_EQ(each.at("true"), "red");
    EXPECT_EQ(each.at("predicted"), "blue");
    EXPECT_GT(each.at("confidence").get<double>(), 1.0 / 3);
    EXPECT_EQ(each.at("image").get<std::string>().substr(0, 4), "/9j/");
  }
  EXPECT_EQ(wrong, (std::set<std::string>{"blue5.jpg", "blue6.jpg"}));
}

TEST_F(ExplainedEvaluation, ATrainingLeavesItsLastOne) {
  const nlohmann::json json = said(shared->file("run"));
  expect_the_truth(json);
  EXPECT_EQ(json.at("global_step"), 40);
  EXPECT_EQ(json.at("top_k").at("top_2_accuracy").is_number(), true);
  EXPECT_THAT(trained.err, AllOf(HasSubstr("evaluation at step 40: Accuracy @ 2 = "),
                                 HasSubstr("Expected calibration error: "), HasSubstr("most_wrong.png")));
  for (const char* name : kFiles) EXPECT_TRUE(files().exists(shared->file(fmt::format("run/{}", name)))) << name;
  EXPECT_THAT(files().read_file(shared->file("run/metrics.jsonl")), HasSubstr("\"top_2_accuracy\""));
}

TEST_F(ExplainedEvaluation, EvalWritesItForAnyDevicesAndBatches) {
  std::set<std::string> seen;
  for (const Arguments& more : {Arguments{"--eval_batch_size=6"}, Arguments{"--eval_batch_size=3", "--num_gpus=2"},
                                Arguments{"--eval_batch_size=4"}, Arguments{"--eval_batch_size=100"}}) {
    const CommandResult result = eval(more);
    ASSERT_EQ(result.code, kSuccess) << result.err;
    EXPECT_THAT(result.out,
                AllOf(HasSubstr("Expected calibration error: "),
                      HasSubstr("(15 bins)\nIn " + temp_.file("eval") + ": evaluation.json, confusion.csv")));
    nlohmann::json json = said(temp_.file("eval"));
    expect_the_truth(json);
    EXPECT_EQ(json.at("checkpoint"), shared->file("run/model.ckpt-40"));
    for (nlohmann::json& each : json.at("most_wrong")) each.erase("confidence");  // kernels go by the batch's size
    seen.insert(json.at("confusion").dump() + json.at("most_wrong").dump());
  }
  EXPECT_EQ(seen.size(), 1U);
  EXPECT_EQ(files().read_file(temp_.file("eval/confusion.csv")),
            "label,\"<b>,\"\"x\"\"\",blue,red\r\n\"<b>,\"\"x\"\"\",3,0,0\r\nblue,0,3,0\r\nred,0,2,3\r\n");
  EXPECT_THAT(files().read_file(temp_.file("eval/per_class.csv")), HasSubstr("\r\nblue,3,5,3,0.6,1,0.75\r\n"));
  EXPECT_THAT(files().read_file(temp_.file("eval/confusion.svg")),
              AllOf(HasSubstr("&lt;b>,&quot;x&quot;"), Not(HasSubstr("<b>"))));
  const std::string sheet = files().read_file(temp_.file("eval/most_wrong.png"));
  const auto image = data::decode_image(std::as_bytes(std::span(sheet)));
  ASSERT_TRUE(image.ok());
}

TEST_F(ExplainedEvaluation, FlagsSayHowMuch) {
  const CommandResult result = eval({"--top_k=1,2,3", "--calibration_bins=4", "--most_wrong=1"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("\nAccuracy @ 1 = 0.8182 Accuracy @ 2 = "),
                                HasSubstr("Accuracy @ 3 = 1.0000\n"), HasSubstr("(4 bins)")));
  nlohmann::json json = said(temp_.file("eval"));
  EXPECT_EQ(json.at("calibration").at("bins").size(), 4U);
  EXPECT_EQ(json.at("most_wrong").size(), 1U);
  EXPECT_TRUE(files().exists(temp_.file("eval/most_wrong.png")));
  ASSERT_EQ(eval({"--most_wrong=0"}).code, kSuccess);
  EXPECT_TRUE(said(temp_.file("eval")).at("most_wrong").empty());
  EXPECT_FALSE(files().exists(temp_.file("eval/most_wrong.png"))) << "it was of the evaluation before";
  for (const char* flag : {"--top_k=0", "--top_k=x", "--calibration_bins=0", "--most_wrong=1001"}) {
    EXPECT_EQ(eval({flag}).code, kUsage) << flag;
  }
}

TEST_F(ExplainedEvaluation, ABadImageIsLeftOutAndTheOthersKeepTheirFiles) {
  std::filesystem::copy(shared->file("photos"), temp_.file("photos"), std::filesystem::copy_options::recursive);
  files().write_file_atomically(temp_.file("photos/val/blue/0.jpg"), "no image");
  for (const char* batch : {"--eval_batch_size=3", "--eval_batch_size=11"}) {
    const CommandResult result = eval({"--data_dir=" + temp_.file("photos"), "--on_bad_sample=skip", batch});
    ASSERT_EQ(result.code, kSuccess) << result.err;
    const nlohmann::json json = said(temp_.file("eval"));
    EXPECT_EQ(json.at("confusion"), (nlohmann::json{{3, 0, 0}, {0, 2, 0}, {0, 2, 3}}));
    std::vector<std::string> wrong;
    for (const nlohmann::json& each : json.at("most_wrong")) {
      wrong.push_back(std::filesystem::path(each.at("file").get<std::string>()).filename());
    }
    EXPECT_THAT(wrong, UnorderedElementsAre("blue5.jpg", "blue6.jpg"));
  }
}

TEST_F(ExplainedEvaluation, ViewsAreAveraged) {
  std::set<std::string> losses;
  for (const char* tta : {"none", "flip", "five_crops", "flip_five_crops", "flip_shift"}) {
    const CommandResult result = eval({std::string("--tta=") + tta});
    ASSERT_EQ(result.code, kSuccess) << result.err;
    EXPECT_THAT(result.out, HasSubstr("[11 examples]"));
    const nlohmann::json json = said(temp_.file("eval"));
    EXPECT_EQ(json.at("images"), 11) << tta;
    EXPECT_EQ(json.at("not_finite"), 0) << tta;
    losses.insert(json.at("loss").dump());
  }
  EXPECT_EQ(losses.size(), 5U) << "the images are not symmetric";
  EXPECT_THAT(eval({"--tta=flip_five_crops"}).out,
              HasSubstr("Test-time augmentation: flip_five_crops, 10 views of each image"));
  const CommandResult tight = eval({"--tta=five_crops", "--eval_resize_size=28"});
  EXPECT_EQ(tight.code, kUsage);
  EXPECT_THAT(tight.err, HasSubstr("five crops need images that are larger than the model's"));
  const CommandResult training =
      run_command(arguments("train", temp_.file("other"), {"--num_batches=1", "--tta=flip"}));
  EXPECT_EQ(training.code, kUsage);
  EXPECT_THAT(training.err, HasSubstr("--tta is for evaluations"));
}

TEST_F(ExplainedEvaluation, ViewsAreAveragedAtTheEndOfATraining) {
  const auto train = [&](const char* folder, const char* tta) {
    return run_command(
        arguments("train", temp_.file(folder),
                  {"--num_batches=4", "--eval_during_training_every_n_steps=2", std::string("--tta=") + tta}));
  };
  const CommandResult plain = train("plain", "none"), views = train("views", "five_crops");
  ASSERT_EQ(plain.code, kSuccess) << plain.err;
  ASSERT_EQ(views.code, kSuccess) << views.err;
  const auto accuracies = [](const std::string& out) {
    std::vector<std::string> lines;
    std::istringstream all(out);
    for (std::string line; std::getline(all, line);) {
      if (line.starts_with("Accuracy @ 1")) lines.push_back(line);
    }
    return lines;
  };
  EXPECT_EQ(accuracies(plain.out), accuracies(views.out)) << "evaluations see each image once";
  EXPECT_THAT(views.out, HasSubstr("Test-time augmentation: five_crops, 5 views of each image: Accuracy @ 1 = "));
  EXPECT_THAT(plain.out, Not(HasSubstr("Test-time augmentation")));
  const auto summary = [&](const char* folder) {
    return files().read_file(core::join_path(temp_.file(folder), "run_summary.json"));
  };
  EXPECT_THAT(summary("views"), HasSubstr("eval_tta_top_1_accuracy"));
  EXPECT_THAT(summary("plain"), Not(HasSubstr("eval_tta_top_1_accuracy")));
  const nlohmann::json evaluated = said(temp_.file("views"));
  EXPECT_EQ(evaluated.at("images"), 11);
}

// The loss falls with each evaluation, but never by a hundred.
TEST_F(ExplainedEvaluation, EarlyStopTakesItsOwnNumberAndASmallestImprovement) {
  std::filesystem::copy(shared->file("photos"), temp_.file("photos"), std::filesystem::copy_options::recursive);
  for (const char* name : {"blue5.jpg", "blue6.jpg"})
    files().remove_file(temp_.file(fmt::format("photos/val/red/{}", name)));
  const auto train = [&](const std::string& run, const Arguments& more) {
    const CommandResult result =
        run_command(arguments("train", temp_.file(run),
                              with_flags({"--data_dir=" + temp_.file("photos"), "--num_batches=20", "--early_stop=1",
                                          "--early_stop_metric=loss", "--eval_during_training_every_n_steps=5"},
                                         more)));
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return said(temp_.file(run)).at("global_step").get<int64_t>();
  };
  EXPECT_EQ(train("plain", {}), 20);
  EXPECT_EQ(train("delta", {"--early_stop_min_delta=100"}), 10);
  const CommandResult alone =
      run_command(arguments("train", temp_.file("x"), {"--num_batches=1", "--early_stop_metric=loss"}));
  EXPECT_EQ(alone.code, kUsage);
  EXPECT_THAT(alone.err, HasSubstr("pass --early_stop=N"));
  const CommandResult unknown = run_command(arguments(
      "train", temp_.file("x"),
      {"--num_batches=2", "--early_stop=1", "--early_stop_metric=top_l", "--eval_during_training_every_n_steps=1"}));
  EXPECT_EQ(unknown.code, kUsage);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("--early_stop_metric"), HasSubstr("did you mean top_1?")));
}

TEST_F(ExplainedEvaluation, FlagsAloneExplainNothingUnlessTheyAreAsked) {
  Arguments flags = arguments("--eval", shared->file("run"), {"--eval_dir=" + temp_.file("eval")});
  const CommandResult plain = run_command(flags);
  ASSERT_EQ(plain.code, kSuccess) << plain.err;
  EXPECT_THAT(plain.out, Not(HasSubstr("calibration")));
  EXPECT_FALSE(files().exists(temp_.file("eval/evaluation.json")));
  flags.emplace_back("--top_k=2");
  const CommandResult asked = run_command(flags);
  ASSERT_EQ(asked.code, kSuccess) << asked.err;
  EXPECT_THAT(asked.out, AllOf(HasSubstr("Accuracy @ 2 = "), Not(HasSubstr("by class"))));
  EXPECT_TRUE(files().exists(temp_.file("eval/evaluation.json")));
}

}  // namespace
}  // namespace trainyard::cli::evaluation_test
