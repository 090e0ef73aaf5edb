// tf_cnn_benchmarks' own protocol (test_util.train_and_eval), for the variants of its TfCnnBenchmarksTest: train from
// nothing; go on with twice as many batches; evaluate. Half of the images are black, of class 0, half white, of
// class 1. docs/tf_cnn_benchmarks_tests.md maps its tests to ours.
#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/sources/function_source.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/records/tf_example.h"
#include "trainyard/formats/records/tfrecord.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::frontends::train_and_eval_test {
namespace {

class BlackAndWhite : public BenchmarkDataset {
 public:
  // `labels`: how many labels there are for the white images, which then say nothing.
  explicit BlackAndWhite(int64_t labels = 1, std::string models = "imagenet")
      : labels_(labels), models_(std::move(models)) {}
  std::string models_of() const override { return models_; }
  std::string name() const override { return "black_and_white"; }
  int64_t num_classes() const override { return 11; }
  int64_t num_examples_per_epoch(data::Subset) const override { return 640; }
  std::shared_ptr<data::BatchSource> make_source(const WantedBatches& wanted) const override {
    const auto make = [wanted, many = labels_](const data::BatchPlace& place) -> core::NamedTensors {
      const at::Tensor images =
          at::full({wanted.batch_size, 3, wanted.image_size.height, wanted.image_size.width}, 1.0, at::kFloat);
      const at::Tensor labels = at::zeros({wanted.batch_size}, at::kLong);
      for (int64_t i = 0; i < wanted.batch_size; ++i) {
        const int64_t sample = (place.batch * wanted.replicas + place.replica) * wanted.batch_size + i;
        if (many > 1) {
          labels[i] = sample % many;
        } else {
          labels[i] = sample % 2;
          if (sample % 2 == 0) images[i].fill_(-1);
        }
      }
      return {{"images", images}, {"labels", labels}};
    };
    return std::make_shared<data::FunctionSource>(
        make, data::FunctionSourceOptions{.replicas = wanted.replicas, .batch_size = wanted.batch_size});
  }

 private:
  int64_t labels_;
  std::string models_;
};

struct Variant {
  const char* name;  // tf_cnn_benchmarks' test
  void (*change)(TfCnnOptions&);
};
void PrintTo(const Variant& variant, std::ostream* out) {  // NOLINT(readability-identifier-naming): GoogleTest calls it
  *out << variant.name;
}

class TrainAndEval : public ::testing::TestWithParam<Variant> {
 protected:
  TfCnnOptions params() const {
    TfCnnOptions params;
    params.model = "trivial";
    params.image_size = 8;
    params.batch_size = 2;
    params.device.gpu = false;
    params.device.replicas = 2;
    params.steps.num_batches = 20;
    params.steps.num_warmup_batches = 5;
    params.display.display_every = 1;
    params.display.print_training_accuracy = true;
    params.learning_rate.init_learning_rate = 0.005;
    params.update.weight_decay = 0;
    params.saving.train_dir = temp_.file("run");
    params.steps.num_eval_batches = 10;
    return params;
  }
  static std::string run(const TfCnnOptions& params, const BlackAndWhite& data = BlackAndWhite()) {
    std::ostringstream out;
    BenchmarkCnn(params, std::make_shared<BlackAndWhite>(data)).run(out);
    return out.str();
  }

  core::TempDir temp_;
};

// Returns the losses of the step lines.
std::vector<double> losses(const std::string& lines) {
  const std::regex step("\n[0-9]+\timages/sec: [^\t]*\t([0-9.]+)");
  std::vector<double> found;
  for (std::sregex_iterator line(lines.begin(), lines.end(), step), end; line != end; ++line) {
    found.push_back(std::stod((*line)[1]));
  }
  return found;
}

std::vector<double> accuracies(const std::string& lines) {
  std::smatch found;
  std::vector<double> numbers;
  if (std::regex_search(lines, found, std::regex("Accuracy @ 1 = ([0-9.]+) Accuracy @ 5 = ([0-9.]+) "))) {
    numbers = {std::stod(found[1]), std::stod(found[2])};
  }
  return numbers;
}

// Trains, goes on with twice as many batches and evaluates, and holds the lines and checkpoints to the original's
// bounds.
void follow_protocol(TfCnnOptions asked, const std::function<std::string(const TfCnnOptions&)>& run) {
  const int64_t batches = *asked.steps.num_batches, warmup = *asked.steps.num_warmup_batches;
  const std::vector<double> first = losses(run(asked));
  ASSERT_EQ(std::ssize(first), batches);
  EXPECT_EQ(train::find_checkpoint(asked.saving.train_dir).global_step, batches + warmup);

  asked.steps.num_batches = 2 * batches;
  const std::vector<double> second = losses(run(asked));
  ASSERT_EQ(std::ssize(second), batches - warmup);
  EXPECT_EQ(train::find_checkpoint(asked.saving.train_dir).global_step, 2 * batches + warmup);
  for (const std::vector<double>* part : {&first, &second}) {
    EXPECT_LE(*std::max_element(part->begin(), part->end()), 100);
  }
  EXPECT_LE(second.back(), 10);
  EXPECT_LE(second.front(), 1.01 * first.back() + 0.001) << "the lines have three digits";

  TfCnnOptions evaluation = asked;
  evaluation.mode = RunMode::kEvaluation;
  EXPECT_EQ(accuracies(run(evaluation)), (std::vector<double>{1, 1}));
}

TEST_P(TrainAndEval, ReachesItsEndAsTheOriginalDoes) {
  TfCnnOptions asked = params();
  GetParam().change(asked);
  follow_protocol(asked, [](const TfCnnOptions& options) { return run(options); });
}

INSTANTIATE_TEST_SUITE_P(
    Variants, TrainAndEval,
    ::testing::Values(
        Variant{"testParameterServer", [](TfCnnOptions&) {}},
        Variant{"testReplicated", [](TfCnnOptions& o) { o.device.variable_update = "replicated"; }},
        Variant{"testGradientRepacking",
                [](TfCnnOptions& o) {
                  o.device.variable_update = "replicated";
                  o.device.gradient_repacking = 2;
                }},
        Variant{"replicatedByXring",
                [](TfCnnOptions& o) {
                  o.device.variable_update = "replicated";
                  o.device.all_reduce_spec = "xring";
                }},
        Variant{"testIndependent", [](TfCnnOptions& o) { o.device.variable_update = "independent"; }},
        Variant{"testStagedVariables", [](TfCnnOptions& o) { o.device.staged_vars = true; }},
        Variant{"relaxedConsistency",
                [](TfCnnOptions& o) {
                  o.device.variable_update = "replicated";
                  o.update.delayed = true;
                  o.learning_rate.init_learning_rate = 0.002;  // late updates overshoot at the others'
                }},
        Variant{"testNoPrintAccuracy", [](TfCnnOptions& o) { o.display.print_training_accuracy = false; }},
        Variant{"testFp16WithFp32Vars",
                [](TfCnnOptions& o) {
                  o.device.use_fp16 = true;
                  o.device.fp16_loss_scale = 1;
                }},
        Variant{"testFp16WithFp16Vars", [](TfCnnOptions& o) { o.device.use_fp16 = o.device.fp16_vars = true; }},
        Variant{"testNHWC", [](TfCnnOptions& o) { o.data_format = "NHWC"; }},
        Variant{"testMomentumParameterServer",
                [](TfCnnOptions& o) {
                  o.update.optimizer = "momentum";
                  o.update.numbers["momentum"] = 0.8;
                }},
        Variant{"testRmspropReplicated",
                [](TfCnnOptions& o) {
                  o.device.variable_update = "replicated";
                  o.update.optimizer = "rmsprop";
                  o.update.numbers["mean_square_decay"] = 0.8;
                  o.update.numbers["momentum"] = 0.6;
                  o.update.numbers["epsilon"] = 0.7;
                  o.learning_rate.init_learning_rate = 0.01;
                }},
        Variant{"testGradientClip", [](TfCnnOptions& o) { o.update.gradient_clip = 100.0; }},
        Variant{"testWeightDecay", [](TfCnnOptions& o) { o.update.weight_decay = 1e-4; }}),
    [](const auto& variant) { return std::string(variant.param.name); });

// Both are late by one step: the second batch still meets the first values, as all batches do at a rate of zero.
TEST_F(TrainAndEval, TheFirstUpdateOfALateTrainingIsSeenInTheThirdStep) {
  const auto losses_with = [&](double rate, bool staged, bool delayed) {
    TfCnnOptions asked = params();
    asked.saving.train_dir.clear();
    asked.steps.num_warmup_batches = 0;
    asked.steps.num_batches = 4;
    asked.learning_rate.init_learning_rate = rate;
    asked.device.staged_vars = staged;
    asked.update.delayed = delayed;
    return losses(run(asked));
  };
  const std::vector<double> still = losses_with(0, false, false), in_time = losses_with(0.05, false, false);
  ASSERT_EQ(still.size(), 4U);
  EXPECT_EQ(in_time[0], still[0]);
  EXPECT_NE(in_time[1], still[1]);
  for (const bool staged : {true, false}) {
    const std::vector<double> late = losses_with(0.05, staged, !staged);
    EXPECT_EQ(late[0], still[0]) << staged;
    EXPECT_EQ(late[1], still[1]) << staged;
    EXPECT_NE(late[2], still[2]) << staged;
  }
}

TEST_F(TrainAndEval, AlexnetReachesItsEndAsTheOriginalDoes) {
  TfCnnOptions asked = params();
  asked.model = "alexnet";
  asked.image_size = 0;
  asked.steps.num_batches = 30;
  asked.learning_rate.init_learning_rate = 0.01;
  follow_protocol(asked, [](const TfCnnOptions& options) { return run(options, BlackAndWhite(1, "cifar10")); });
}

// testImagenetPreprocessor, ...NoDistortions, ...VerboseSummary: JPEGs in TFRecords, of random sizes, half of them
// black.
TEST_F(TrainAndEval, RecordsOfImagenetReachTheirEndAsTheOriginalDoes) {
  const auto write = [this](const std::string& name, int count) {
    core::RandomStream sizes(7, name);
    formats::TfRecordWriter writer(core::local_file_system().open_write(temp_.file(name)));
    for (int i = 0; i < count; ++i) {
      const auto side = [&sizes] { return 30 + static_cast<int>(sizes.below(270)); };
      const std::vector<std::byte> jpeg =
          data::encode_jpeg(data::flat_image(side(), side(), i % 2 == 0 ? uint8_t{0} : uint8_t{255}));
      formats::ExampleBuilder example;
      example.add_bytes(formats::kImageEncoded, std::string(reinterpret_cast<const char*>(jpeg.data()), jpeg.size()));
      example.add_int64(formats::kImageClassLabel, 1 + i % 2);
      writer.write(example.build());
    }
    writer.close();
  };
  write("train-00000-of-00002", 64);
  write("train-00001-of-00002", 64);
  write("validation-00000-of-00001", 32);
  int number = 0;
  for (const auto& [distortions, verbosity] : {std::pair{true, 0}, {false, 0}, {false, 2}}) {
    SCOPED_TRACE(++number);
    TfCnnOptions asked = params();
    asked.input.data_dir = temp_.path();
    asked.input.data_name = "imagenet";
    asked.input.images.distortions = distortions;
    asked.input.images.distort_color_in_yiq = false;
    asked.display.summary_verbosity = verbosity;
    asked.display.save_summaries_steps = 5;
    asked.saving.train_dir = temp_.file("run" + std::to_string(number));
    follow_protocol(asked, [](const TfCnnOptions& options) {
      std::ostringstream out;
      BenchmarkCnn(options).run(out);
      return out.str();
    });
    const auto files = core::local_file_system().list(asked.saving.train_dir);
    const bool records =
        std::any_of(files.begin(), files.end(), [](const std::string& name) { return name.starts_with("events"); });
    EXPECT_EQ(records, verbosity > 0);
  }
}

// testLowAccuracy: equal images with ten labels.
TEST_F(TrainAndEval, CannotTellEqualImagesApart) {
  TfCnnOptions asked = params();
  run(asked, BlackAndWhite(10));
  asked.mode = RunMode::kEvaluation;
  const std::vector<double> found = accuracies(run(asked, BlackAndWhite(10)));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_LE(found[0], 0.1);
  EXPECT_LE(found[1], 0.5);
}

// An accuracy of 0 is none, as in tf_cnn_benchmarks: each evaluation would reach it.
TEST_F(TrainAndEval, AGoalOfZeroEndsNothing) {
  TfCnnOptions asked = params();
  asked.mode = RunMode::kTrainingAndEvaluation;
  asked.steps.num_warmup_batches = 0;
  asked.steps.num_batches = 4;
  asked.steps.num_eval_batches = 2;
  asked.steps.eval_every_n_steps = 2;
  asked.stop_at_top_1_accuracy = 0;
  const std::string lines = run(asked);
  EXPECT_EQ(losses(lines).size(), 4U) << lines;
  EXPECT_NE(lines.find("Running final evaluation at global_step 4\n"), std::string::npos) << lines;
}

// testSaveModelSteps: two runs of ten steps, each second one saved, three kept.
TEST_F(TrainAndEval, KeepsTheLastCheckpoints) {
  TfCnnOptions asked = params();
  asked.steps.num_warmup_batches = 0;
  asked.steps.num_batches = 10;
  asked.saving.save_model_steps = 2;
  asked.saving.max_ckpts_to_keep = 3;
  run(asked);
  asked.steps.num_batches = 20;
  run(asked);
  std::vector<int64_t> steps;
  for (const train::CheckpointInfo& saved : train::CheckpointStore(asked.saving.train_dir).list()) {
    steps.push_back(saved.global_step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{16, 18, 20}));
}

}  // namespace
}  // namespace trainyard::frontends::train_and_eval_test
