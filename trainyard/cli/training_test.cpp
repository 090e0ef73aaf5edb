// Whole runs through the command line, on the embedded data set: train, stop, resume, evaluate, predict.
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/shapes_suite.h"
#include "trainyard/core/testing/golden.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/formats/tensors/npy.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::training_test {
namespace {

core::FileSystem& files() {
  return core::local_file_system();
}

class Training : public ShapesSuite {
 protected:
  // The arguments of a short run of lenet-sized work into `train_dir`, with `more` at their end.
  Arguments arguments(const std::string& train_dir, const Arguments& more = {}) const {
    Arguments all = {"train",
                     "--model=resnet20",
                     "--data_dir=" + shared->file("shapes"),
                     "--device=cpu",
                     "--batch_size=8",
                     "--num_warmup_batches=0",
                     "--display_every=5",
                     "--init_learning_rate=0.05",
                     "--optimizer=tf_nesterov",
                     "--num_intra_threads=1",
                     "--train_dir=" + temp_.file(train_dir)};
    return with_flags(all, more);
  }
  CommandResult train(const std::string& train_dir, const Arguments& more = {}) const {
    return run_command(arguments(train_dir, more));
  }
  // The manifest of the newest checkpoint: names, shapes and checksums of all that continues the run.
  std::string checkpoint_content(const std::string& train_dir) const {
    return files().read_file(core::join_path(train::find_checkpoint(temp_.file(train_dir)).path, "manifest.json"));
  }

  core::TempDir temp_;
};

TEST_F(Training, PrintsItsLines) {
  const CommandResult result =
      train("run", {"--num_batches=10", "--num_warmup_batches=2", "--print_training_accuracy"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  const std::string steady = std::regex_replace(std::regex_replace(result.out, std::regex(temp_.path()), "TEMP"),
                                                std::regex(shared->path()), "SHARED");
  EXPECT_TRUE(core::matches_golden(masked_numbers(steady), "trainyard/cli/testdata/train_output.txt"));
  EXPECT_EQ(train::find_checkpoint(temp_.file("run")).global_step, 10);
}

TEST_F(Training, TenStepsEqualFiveAndFiveBitForBit) {
  ASSERT_EQ(train("whole", {"--num_batches=10"}).code, kSuccess);
  ASSERT_EQ(train("parts", {"--num_batches=5"}).code, kSuccess);
  const CommandResult resumed = train("parts", {"--num_batches=10", "--datasets_num_private_threads=3"});
  ASSERT_EQ(resumed.code, kSuccess) << resumed.err;
  EXPECT_EQ(train::find_checkpoint(temp_.file("parts")).global_step, 10);
  EXPECT_EQ(checkpoint_content("parts"), checkpoint_content("whole"));
}

TEST_F(Training, AResumeInMidEpochIsExactWithTwoReplicas) {
  // 120 images: an epoch is 7.5 steps of 2 x 8, so step 5 is in the middle of one.
  for (const std::string mode : {"replicated", "parameter_server"}) {
    const std::string flag = "--variable_update=" + mode;
    ASSERT_EQ(train(mode, {"--num_batches=9", "--num_gpus=2", flag}).code, kSuccess);
    ASSERT_EQ(train(mode + "2", {"--num_batches=5", "--num_gpus=2", flag}).code, kSuccess);
    ASSERT_EQ(train(mode + "2", {"--num_batches=9", "--num_gpus=2", flag}).code, kSuccess);
    EXPECT_EQ(checkpoint_content(mode + "2"), checkpoint_content(mode)) << mode;
  }
}

TEST_F(Training, TheSeedMatters) {
  ASSERT_EQ(train("a", {"--num_batches=2"}).code, kSuccess);
  ASSERT_EQ(train("b", {"--num_batches=2"}).code, kSuccess);
  ASSERT_EQ(train("c", {"--num_batches=2", "--tf_random_seed=5"}).code, kSuccess);
  EXPECT_EQ(checkpoint_content("a"), checkpoint_content("b"));
  EXPECT_NE(checkpoint_content("a"), checkpoint_content("c"));
}

TEST_F(Training, AStopBySignalSavesAndHasACodeOfItsOwn) {
  core::StopSource stop;
  stop.request_stop(core::StopReason::kSignal, "SIGTERM");
  const CommandResult result = run_command(arguments("stopped", {"--num_batches=10"}), stop.token());
  EXPECT_EQ(result.code, kStoppedBySignal) << result.err;
  const int64_t step = train::find_checkpoint(temp_.file("stopped")).global_step;
  EXPECT_LT(step, 10);
  ASSERT_EQ(train("stopped", {"--num_batches=10"}).code, kSuccess);
  ASSERT_EQ(train("whole", {"--num_batches=10"}).code, kSuccess);
  EXPECT_EQ(checkpoint_content("stopped"), checkpoint_content("whole"));
}

TEST_F(Training, EvaluatesDuringTrainingAndAfterwards) {
  const CommandResult result =
      train("eval", {"--num_batches=6", "--eval_during_training_every_n_steps=2", "--eval_exact"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  EXPECT_EQ(count_lines(result.out, "^Running evaluation at global_step"), 2) << result.out;
  EXPECT_EQ(count_lines(result.out, "^Running final evaluation at global_step 6$"), 1) << result.out;
  EXPECT_EQ(count_lines(result.out, "^Accuracy @ 1 = .* \\[36 examples\\]$"), 3) << result.out;
  EXPECT_EQ(count_lines(result.out, "^total images/sec"), 0) << result.out;

  Arguments evaluate = arguments("eval", {"--eval_exact"});
  evaluate[0] = "eval";
  const CommandResult evaluated = run_command(evaluate);
  ASSERT_EQ(evaluated.code, kSuccess) << evaluated.err;
  // The same checkpoint, the same images, the same line.
  const std::string last = result.out.substr(result.out.rfind("Accuracy @ 1"));
  EXPECT_NE(evaluated.out.find(last.substr(0, last.find('\n'))), std::string::npos) << evaluated.out << result.out;
}

TEST_F(Training, TheFileOfATrainingServesItsEvaluation) {
  files().write_file_atomically(temp_.file("run.yaml"),
                                "num_batches: 2\neval_during_training_every_n_steps: 1\neval_exact: true\n");
  const std::string config = "--config=" + temp_.file("run.yaml");
  ASSERT_EQ(train("file", {config}).code, kSuccess);
  Arguments evaluate = arguments("file", {config});
  evaluate[0] = "eval";
  const CommandResult evaluated = run_command(evaluate);
  EXPECT_EQ(evaluated.code, kSuccess) << evaluated.err;
  // On the command line it is a contradiction.
  evaluate.push_back("--eval_during_training_every_n_steps=1");
  EXPECT_EQ(run_command(evaluate).code, kUsage);

  // All that an evaluation refuses where it is asked for it.
  files().write_file_atomically(
      temp_.file("all.yaml"),
      "stop_at_top_1_accuracy: 0.5\nstop_after_epochs: 1\nearly_stop: 3\nearly_stop_metric: loss\n"
      "early_stop_min_delta: 0.1\nfreeze: [backbone]\nfreeze_until: ['backbone:1']\nfreeze_after: ['backbone:1']\n"
      "whiten_images: 10\nfinetune: true\nexisting_run: delete\nplot_schedule: plot.svg\ndescribe_input: true\n"
      "trackers: [mlflow]\nclass_weights: balanced\nbalanced_sampling: true\nasp: true\nmask_algo: mask_2d_greedy\n"
      "asp_exclude: ['conv*']\nbackbone_model_path: nowhere\nqat: true\ncalibration_batches: 2\n"
      "weights: nowhere.safetensors\neval_exact: true\n");
  Arguments all = arguments("file", {"--config=" + temp_.file("all.yaml")});
  all[0] = "eval";
  const CommandResult served = run_command(all);
  EXPECT_EQ(served.code, kSuccess) << served.err;
  const auto accuracy = [](const std::string& out) { return out.substr(out.find("Accuracy @ 1"), 30); };
  EXPECT_EQ(accuracy(served.out), accuracy(evaluated.out));
}

TEST_F(Training, WritesMetricsSummaryAndCurve) {
  const CommandResult result =
      train("files", {"--num_batches=6", "--save_summaries_steps=2", "--summary_verbosity=1", "--display_every=2"});
  ASSERT_EQ(result.code, kSuccess) << result.err;
  const auto names = files().list(temp_.file("files"));
  auto has = [&](const std::string& part) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& n) { return n.find(part) != std::string::npos; });
  };
  for (const char* part :
       {"metrics.jsonl", "metrics.csv", "run_summary.json", "events.out.tfevents.", "curve.svg", "model.ckpt-6"}) {
    EXPECT_TRUE(has(part)) << part;
  }
  const auto summary = nlohmann::json::parse(files().read_file(temp_.file("files/run_summary.json")));
  EXPECT_GT(summary.at("images_per_second").get<double>(), 0);
}

TEST_F(Training, PredictsImagesAndArrays) {
  ASSERT_EQ(train("predict", {"--num_batches=2"}).code, kSuccess);
  const std::string picture = temp_.file("star.jpg");
  const data::Image image = data::draw_shape(1, data::Subset::kValidation, 0, 32);
  const auto bytes = data::encode_jpeg(image);
  files().write_file_atomically(picture, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const std::string from = "--train_dir=" + temp_.file("predict");
  const CommandResult text = run_command({"predict", from, picture});
  ASSERT_EQ(text.code, kSuccess) << text.err;
  EXPECT_EQ(
      count_lines(text.out, "^.*star.jpg: [0-9]+ [a-z_]+ [01]\\.[0-9]{4}(, [0-9]+ ([a-z_]+ )?[01]\\.[0-9]{4}){4}$"), 1)
      << text.out;
  const CommandResult json = run_command({"predict", from, "--json", picture});
  const auto line = nlohmann::json::parse(json.out);
  EXPECT_EQ(line.at("top").size(), 5u);
  EXPECT_GE(line["top"][0]["probability"].get<double>(), line["top"][1]["probability"].get<double>());

  const std::array<int64_t, 4> shape{2, 3, 32, 32};
  const std::vector<float> zeros(2 * 3 * 32 * 32, 0.0F);
  files().write_file_atomically(temp_.file("x.npy"), formats::encode_npy<float>(shape, zeros));
  const CommandResult array =
      run_command({"predict", from, "--input=" + temp_.file("x.npy"), "--output=" + temp_.file("y.npy")});
  ASSERT_EQ(array.code, kSuccess) << array.err;
  const auto logits = formats::read_npy(*files().open_read(temp_.file("y.npy")));
  EXPECT_EQ(logits.shape[0], 2);
  const auto values = logits.values<float>();
  const size_t classes = values.size() / 2;
  for (size_t i = 0; i < classes; ++i) EXPECT_EQ(values[i], values[classes + i]);  // equal images, equal logits
}

// Arrays run 64 images at a time.
TEST_F(Training, PredictsEachImageOfALongArray) {
  ASSERT_EQ(train("long", {"--num_batches=2"}).code, kSuccess);
  const std::string from = "--train_dir=" + temp_.file("long"), in = temp_.file("x.npy"), out = temp_.file("y.npy");
  constexpr size_t kImages = 130, kNumbers = size_t{3} * 32 * 32;
  std::vector<float> images(kImages * kNumbers);
  for (size_t i = 0; i < images.size(); ++i) images[i] = std::sin(static_cast<float>(i % 997 + i / kNumbers));
  const auto logits_of = [&](size_t first, size_t count) {
    const std::array<int64_t, 4> shape{static_cast<int64_t>(count), 3, 32, 32};
    const std::span<const float> part(images.data() + first * kNumbers, count * kNumbers);
    files().write_file_atomically(in, formats::encode_npy<float>(shape, part));
    const CommandResult result = run_command({"predict", from, "--input=" + in, "--output=" + out});
    EXPECT_EQ(result.code, kSuccess) << result.err;
    const auto array = formats::read_npy(*files().open_read(out));
    const auto values = array.values<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> all = logits_of(0, kImages);
  const size_t classes = all.size() / kImages;
  for (const size_t image : {size_t{0}, size_t{63}, size_t{64}, size_t{127}, size_t{128}, size_t{129}}) {
    const std::vector<float> alone = logits_of(image, 1);
    ASSERT_EQ(alone.size(), classes);
    for (size_t i = 0; i < classes; ++i) EXPECT_NEAR(all[image * classes + i], alone[i], 1e-5) << image;
  }
}

// A model is given its images as it was trained, unless a flag says otherwise.
TEST_F(Training, PredictsWithTheInputOfTheTraining) {
  ASSERT_EQ(train("input", {"--num_batches=2", "--normalization=mean"}).code, kSuccess);
  const std::string picture = temp_.file("star.jpg");
  const auto bytes = data::encode_jpeg(data::draw_shape(1, data::Subset::kValidation, 0, 32));
  files().write_file_atomically(picture, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto predict = [&](const Arguments& flags) {
    Arguments all{"predict", "--train_dir=" + temp_.file("input"), picture};
    all.insert(all.end(), flags.begin(), flags.end());
    const CommandResult result = run_command(all);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    return result.out;
  };
  EXPECT_EQ(predict({}), predict({"--normalization=mean"}));
  EXPECT_NE(predict({}), predict({"--normalization=symmetric"}));
  const CommandResult same = train("input", {"--num_batches=3"});
  ASSERT_EQ(same.code, kSuccess);
  EXPECT_EQ(same.err.find("instead of"), std::string::npos) << "the training continues with it: " << same.err;
  const CommandResult other = train("input", {"--num_batches=4", "--normalization=symmetric"});
  ASSERT_EQ(other.code, kSuccess);
  EXPECT_NE(other.err.find("normalization is symmetric instead of mean ("), std::string::npos) << other.err;
}

TEST_F(Training, DumpedConfigRunsTheSame) {
  Arguments dump = arguments("config", {"--num_batches=3", "--dump_config"});
  const CommandResult dumped = run_command(dump);
  ASSERT_EQ(dumped.code, kSuccess) << dumped.err;
  files().write_file_atomically(temp_.file("run.yaml"), dumped.out);
  ASSERT_EQ(run_command({"train", "--config=" + temp_.file("run.yaml"), "--nodump_config"}).code, kSuccess);
  ASSERT_EQ(train("direct", {"--num_batches=3"}).code, kSuccess);
  EXPECT_EQ(checkpoint_content("config"), checkpoint_content("direct"));
}

}  // namespace
}  // namespace trainyard::cli::training_test
