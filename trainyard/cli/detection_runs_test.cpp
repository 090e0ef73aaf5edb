// Detectors through the program: runs on synthetic data and on a made set of boxed shapes.
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/detection/boxed_shapes.h"
#include "trainyard/data/testing/coco_folder.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/models/testing/tiny_ssd.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::detection_runs_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DetectionRuns : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared = new core::TempDir;
    data::write_boxed_shapes({.train_count = 16, .validation_count = 8, .image_size = 100}, data());
  }
  static void TearDownTestSuite() { delete shared; }
  static std::string data() { return shared->file("boxed"); }

  // tf_cnn_benchmarks' dialect: 16 images are four steps.
  Arguments tf(const Arguments& more = {}) const {
    return with_flags({"--model=tiny_ssd", "--data_name=coco", "--data_dir=" + data(), "--device=cpu", "--batch_size=4",
                       "--num_batches=6", "--num_warmup_batches=0", "--display_every=1", "--num_intra_threads=1",
                       "--num_eval_batches=2", "--optimizer=momentum", "--weight_decay=0.0005"},
                      more);
  }
  std::string bytes_of_newest(const std::string& train_dir) const {
    std::string all;
    const std::string folder = train::find_checkpoint(train_dir).path;
    std::map<std::string, std::string> sorted;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_regular_file() || name.ends_with(".json")) continue;  // times
      sorted[name] = core::local_file_system().read_file(entry.path().string());
    }
    for (const auto& [name, bytes] : sorted) all += name + bytes;
    return all;
  }

  static core::TempDir* shared;
  core::TempDir temp_;
};
core::TempDir* DetectionRuns::shared = nullptr;

// The lines of COCO's numbers in a text, in their order.
std::vector<std::string> coco_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.find("maxDets=") != std::string::npos || line.starts_with("Current AP")) lines.push_back(line);
  }
  return lines;
}

TEST_F(DetectionRuns, Ssd300TrainsOnSyntheticBoxes) {
  const CommandResult result = run_command({"--model=ssd300", "--data_name=coco", "--device=cpu", "--batch_size=1",
                                            "--num_batches=1", "--num_warmup_batches=0", "--display_every=1"});
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Dataset:     coco (synthetic)"));
  EXPECT_EQ(count_lines(result.out, "^1\timages/sec: .*\t[0-9]+\\.[0-9]{3}$"), 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("total images/sec: "));
}

// It takes the number of matched boxes for a label: a loss near log(81) from the start.
TEST_F(DetectionRuns, TrivialTakesTheBatches) {
  for (const Arguments& more : {Arguments{"--model=trivial"}, Arguments{"--model=trivial", "--data_dir="}}) {
    const CommandResult result = run_command(tf(more));
    EXPECT_EQ(result.code, kSuccess) << result.err;
    EXPECT_EQ(count_lines(result.out, "^6\timages/sec: .*\t[0-9]+\\.[0-9]{3}$"), 1) << result.out;
  }
  const CommandResult evaluated = run_command(tf({"--model=trivial", "--eval_during_training_every_n_steps=2"}));
  EXPECT_EQ(evaluated.code, kUsage);
  EXPECT_THAT(evaluated.err, HasSubstr("trivial detects nothing that could be evaluated"));
}

TEST_F(DetectionRuns, TheLargestBatchIsFound) {
  const CommandResult result = run_command(tf({"--batch_size=auto", "--batch_size_memory_mib=600", "--num_batches=1"}));
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, HasSubstr("total images/sec: "));
}

TEST_F(DetectionRuns, ForwardPassesShowNoAccuracies) {
  const CommandResult result = run_command(tf({"--forward_only"}));
  EXPECT_EQ(result.code, kSuccess) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("total images/sec: "), Not(HasSubstr("top_1_accuracy"))));
}

TEST_F(DetectionRuns, EvaluationsHaveTheLinesOfTheOriginal) {
  const std::string run = temp_.file("run");
  const CommandResult trained =
      run_command(tf({"--train_dir=" + run, "--eval_during_training_every_n_steps=3", "--save_model_steps=100"}));
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_EQ(count_lines(trained.out, "^Running evaluation at global_step 3$"), 1) << trained.out;
  EXPECT_EQ(count_lines(trained.out, "^Got results for all 8 eval examples\\. Calculate mAP\\.\\.\\.$"), 2);
  EXPECT_EQ(count_lines(trained.out,
                        "^ Average Precision  \\(AP\\) @\\[ IoU=0\\.50:0\\.95 \\| area=   all \\| "
                        "maxDets=100 \\] = (-1|0)\\.[0-9]{3}$"),
            2)
      << trained.out;
  EXPECT_EQ(count_lines(trained.out, "^Current AP: -?[0-9]\\.[0-9]{5}$"), 2);
  EXPECT_EQ(count_lines(trained.out, "^Accuracy @ 1 = -?[0-9.]+ Accuracy @ 5 = 0\\.0000 \\[8 examples\\]$"), 2);
  const std::vector<std::string> lines = coco_lines(trained.out);
  ASSERT_EQ(lines.size(), 26U);

  // The checkpoint gives the last evaluation's numbers again.
  const CommandResult evaluated = run_command(tf({"--eval", "--train_dir=" + run, "--eval_dir=" + temp_.file("eval")}));
  ASSERT_EQ(evaluated.code, kSuccess) << evaluated.err;
  EXPECT_EQ(coco_lines(evaluated.out), std::vector<std::string>(lines.begin() + 13, lines.end()));

  // Of four images, as of a whole evaluation on those alone.
  const CommandResult part = run_command(tf({"--eval", "--train_dir=" + run, "--num_eval_batches=1"}));
  EXPECT_EQ(count_lines(part.out, "^Got 4 out of 8 eval examples\\. Calculate mAP of these\\.\\.\\.$"), 1) << part.out;
}

// The image in place of a bad one may be behind the evaluated part, and is then measured, too.
TEST_F(DetectionRuns, AnEvaluationGoesOnWithoutABadImage) {
  const std::string run = temp_.file("run"), set = temp_.file("set");
  ASSERT_EQ(run_command(tf({"--train_dir=" + run, "--save_model_steps=100"})).code, kSuccess);
  std::filesystem::copy(data(), set, std::filesystem::copy_options::recursive);
  std::filesystem::remove(set + "/val2017/000000000004.jpg");
  for (const char* policy : {"skip", "substitute"}) {
    const CommandResult part = run_command(tf({"--eval", "--train_dir=" + run, "--data_dir=" + set,
                                               "--num_eval_batches=1", fmt::format("--on_bad_sample={}", policy)}));
    EXPECT_EQ(part.code, kSuccess) << part.err;
    EXPECT_EQ(coco_lines(part.out).size(), 13U) << part.out;
  }
  const CommandResult exact =
      run_command({"eval", "--model=tiny_ssd", "--data_name=coco", "--data_dir=" + set, "--device=cpu",
                   "--num_intra_threads=1", "--train_dir=" + run, "--on_bad_sample=skip"});
  ASSERT_EQ(exact.code, kSuccess) << exact.err;
  EXPECT_EQ(count_lines(exact.out, "^Got 7 out of 8 eval examples\\. Calculate mAP of these\\.\\.\\.$"), 1)
      << exact.out;
}

TEST_F(DetectionRuns, ResumesInTheMiddleOfAnEpochWithTheSameBits) {
  for (const char* name : {"whole", "parts"}) {
    const std::string run = temp_.file(name);
    const bool parts = name == std::string("parts");
    for (const int steps : parts ? std::vector<int>{3, 6} : std::vector<int>{6}) {
      const CommandResult result =
          run_command(tf({"--train_dir=" + run, fmt::format("--num_batches={}", steps), "--save_model_steps=100"}));
      ASSERT_EQ(result.code, kSuccess) << result.err;
    }
  }
  EXPECT_EQ(train::find_checkpoint(temp_.file("parts")).global_step, 6);
  EXPECT_TRUE(bytes_of_newest(temp_.file("whole")) == bytes_of_newest(temp_.file("parts")));
}

// The flag is for ssd300 by its name; a program that fills in options has it for any detector.
TEST_F(DetectionRuns, NumbersThatComeLaterAreTheSame) {
  const CommandResult refused =
      run_command(tf({"--eval_during_training_every_n_steps=3", "--collect_eval_results_async"}));
  EXPECT_EQ(refused.code, kUsage);
  EXPECT_THAT(refused.err, HasSubstr("--collect_eval_results_async only works with ssd300 model currently."));

  frontends::TfCnnOptions options;
  options.model = "tiny_ssd";
  options.input.data_name = "coco";
  options.input.data_dir = data();
  options.device.gpu = false;
  options.batch_size = 4;
  options.steps.num_batches = 6;
  options.steps.num_warmup_batches = 0;
  options.steps.num_eval_batches = 2;
  options.steps.eval_every_n_steps = 3;
  options.mode = frontends::RunMode::kTrainingAndEvaluation;
  options.threads.intra_op_threads = 1;
  options.saving.keep_best = "none";
  const auto run = [&](bool later) {
    options.collect_eval_results_async = later;
    std::ostringstream out;
    const frontends::RunStatistics statistics = frontends::BenchmarkCnn(options).run(out);
    return std::pair(out.str(), statistics.average_precision);
  };
  const auto [at_once, precision] = run(false);
  const auto [later, later_precision] = run(true);
  EXPECT_EQ(coco_lines(at_once).size(), 26U) << at_once;
  EXPECT_EQ(coco_lines(later), coco_lines(at_once)) << later;
  EXPECT_TRUE(precision.has_value());
  EXPECT_EQ(precision, later_precision);
  for (const char* step : {"3", "6"}) {
    EXPECT_EQ(count_lines(later, fmt::format("^Results of the evaluation at global_step {}$", step)), 1) << later;
  }
  EXPECT_EQ(count_lines(later, "^Accuracy @ 1 = "), 2) << later;
}

TEST_F(DetectionRuns, OurOwnLanguageKeepsTheBestByItsPrecision) {
  const std::string run = temp_.file("run");
  const CommandResult trained =
      run_command({"train", "--model=tiny_ssd", "--data_dir=" + data(), "--data_name=coco", "--device=cpu",
                   "--batch_size=8", "--num_epochs=2", "--num_intra_threads=1", "--train_dir=" + run});
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  const std::string metrics = core::local_file_system().read_file(core::join_path(run, "metrics.jsonl"));
  EXPECT_THAT(metrics, AllOf(HasSubstr("COCO/AP50"), HasSubstr("COCO/ARl")));
  EXPECT_EQ(train::find_checkpoint(core::join_path(run, "best")).global_step % 2, 0);
  const std::string summary = core::local_file_system().read_file(core::join_path(run, "run_summary.json"));
  EXPECT_THAT(summary, HasSubstr("COCO/AP"));
  const CommandResult evaluated =
      run_command({"eval", "--train_dir=" + run, "--data_dir=" + data(), "--device=cpu", "--num_intra_threads=1"});
  ASSERT_EQ(evaluated.code, kSuccess) << evaluated.err;
  const std::vector<std::string> lines = coco_lines(trained.out);
  EXPECT_EQ(coco_lines(evaluated.out), std::vector<std::string>(lines.end() - 13, lines.end()));
}

// All of it has to agree for that: the crops of boxes, the matching, the loss, the decoding and the metric.
TEST_F(DetectionRuns, LearnsImagesByHeart) {
  const std::string set = temp_.file("four");
  data::write_boxes_to_learn(set, 4, 100);
  const CommandResult result = run_command(tf(
      {"--data_dir=" + set, "--num_batches=60", "--init_learning_rate=0.003", "--nodistortions", "--optimizer=adam",
       "--weight_decay=0", "--num_eval_batches=1", "--eval_during_training_every_n_steps=100", "--display_every=60"}));
  ASSERT_EQ(result.code, kSuccess) << result.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(result.out, found,
                                std::regex("IoU=0\\.50      \\| area=   all \\| maxDets=100 \\] = ([0-9.]+)")))
      << result.out;
  EXPECT_GE(std::stod(found[1]), 0.9) << result.out;
}

TEST_F(DetectionRuns, RefusesWhatIsOfClasses) {
  const std::map<std::string, std::string> refused = {
      {"--print_training_accuracy", "--print_training_accuracy is for images of one label"},
      {"--label_smoothing=0.1", "--label_smoothing is for images of one label"},
      {"--loss=bce", "--loss is for images of one label"},
      {"--mixup_alpha=0.2", "--mixup_alpha or --cutmix_alpha is for images of one label"},
      {"--num_classes=7", "tiny_ssd has 81 outputs a box"},
      {"--image_size=128", "tiny_ssd is for images of 300x300"},
      {"--decoded_cache_mib=4", "boxes of objects (coco)"},
  };
  for (const auto& [flag, message] : refused) {
    const CommandResult result = run_command(tf({flag}));
    EXPECT_NE(result.code, kSuccess) << flag;
    EXPECT_THAT(result.err, HasSubstr(message)) << flag;
  }
  const CommandResult synthetic = run_command(tf({"--data_dir=", "--eval_during_training_every_n_steps=2"}));
  EXPECT_NE(synthetic.code, kSuccess);
  EXPECT_THAT(synthetic.err, HasSubstr("an evaluation of a detector needs images with boxes"));
}

}  // namespace
}  // namespace trainyard::cli::detection_runs_test
