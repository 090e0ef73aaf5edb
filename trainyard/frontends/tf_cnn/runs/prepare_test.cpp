// What a run asks of the model that it evaluates, which size its images have, and how long it may measure kernels.
#include "trainyard/frontends/tf_cnn/prepare.h"

#include <cstdint>
#include <memory>
#include <optional>

#include <gtest/gtest.h>

#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/measuring_time.h"
#include "trainyard/train/profile/machine_limit_share.h"

namespace trainyard::frontends::prepare_test {
namespace {

PreparedRun run_of(Dialect dialect, RunMode mode) {
  PreparedRun run;
  run.options.dialect = dialect;
  run.options.mode = mode;
  run.model = &models::find_model("lenet", "imagenet");
  run.input.dataset = "imagenet";
  run.num_classes = 7;
  return run;
}

TEST(EvaluatedModel, IsTheRunsCheckpoint) {
  const core::TempDir temp;
  PreparedRun run = run_of(Dialect::kTrainyard, RunMode::kEvaluation);
  run.options.saving.train_dir = temp.path();
  run.options.image_size = {20, 24};
  run.device.kernels.convolutions = nn::ConvolutionPolicy::kByShape;
  const TrainedModelOptions model = evaluated_model(run);
  EXPECT_EQ(model.path, temp.path());
  EXPECT_EQ(model.model, "lenet");
  EXPECT_EQ(model.dataset, "imagenet");
  EXPECT_EQ(model.num_classes, 0) << "the checkpoint says it";
  EXPECT_EQ(model.image_size, nn::Size2d(20, 24));
  EXPECT_EQ(model.averaged_weights, std::nullopt);
  EXPECT_EQ(model.damaged, train::DamagedCheckpoints::kStop);
  EXPECT_EQ(model.kernels.convolutions, nn::ConvolutionPolicy::kByShape);
  EXPECT_TRUE(model.device.is_cpu());
  EXPECT_EQ(model.precision, Precision::kAuto);
  EXPECT_FALSE(model.tells_input);
  ASSERT_TRUE(static_cast<bool>(model.build));
  EXPECT_EQ(model.build({.num_classes = 5}).output_shape(), (nn::Shape{5}));
  EXPECT_EQ(model.build({.num_classes = 5}).input_shape(), (nn::Shape{3, 28, 28})) << "the model's own size";
}

TEST(EvaluatedModel, IsTheFileThatIsNamed) {
  PreparedRun run = run_of(Dialect::kTrainyard, RunMode::kEvaluation);
  run.options.weights = "file.safetensors";
  run.options.average.averaged_weights = false;
  run.options.saving.ignore_damaged_checkpoints = true;
  run.options.precision = Precision::kBfloat16;
  TrainedModelOptions model = evaluated_model(run);
  EXPECT_EQ(model.path, "file.safetensors");
  EXPECT_EQ(model.num_classes, 7) << "a file need not say it";
  EXPECT_EQ(model.averaged_weights, false);
  EXPECT_EQ(model.damaged, train::DamagedCheckpoints::kPassOver);
  EXPECT_EQ(model.precision, Precision::kBfloat16);
  run.options.precision = Precision::kInt8;
  run.model = nullptr;
  model = evaluated_model(run);
  EXPECT_EQ(model.precision, Precision::kAuto) << "the evaluation finds the scales of a model that has none";
  EXPECT_EQ(model.model, "") << "any";
}

TEST(ImageSizeOfARun, IsThatOfItsFlagsElseOfWhatItBeginsWith) {
  for (const RunMode mode : {RunMode::kTraining, RunMode::kForwardOnly, RunMode::kEvaluation}) {
    PreparedRun run = run_of(Dialect::kTrainyard, mode);
    EXPECT_EQ(choose_image_size(run), nn::Size2d(28)) << run_mode_name(mode);
    run.saved.image_size = {20, 24};
    EXPECT_EQ(choose_image_size(run), nn::Size2d(20, 24)) << run_mode_name(mode);
    run.options.image_size = {50, 54};
    EXPECT_EQ(choose_image_size(run), nn::Size2d(50, 54)) << run_mode_name(mode);
  }
}

TEST(ImageSizeOfARun, OfATrainingIsNotThatOfAnotherModel) {
  PreparedRun run = run_of(Dialect::kTrainyard, RunMode::kTraining);
  run.saved.image_size = {20, 24};
  run.saved.model = "vgg16";
  EXPECT_EQ(choose_image_size(run), nn::Size2d(20, 24)) << "weights to begin with";
  run.saved.continues = true;
  EXPECT_EQ(choose_image_size(run), nn::Size2d(28)) << "which is refused when the run is resumed";
  run.saved.model = "lenet";
  EXPECT_EQ(choose_image_size(run), nn::Size2d(20, 24));
  run.options.dialect = Dialect::kTfCnnBenchmarks;
  run.saved.continues = false;
  EXPECT_EQ(choose_image_size(run), nn::Size2d(20, 24));
  run.saved.model = "vgg16";
  EXPECT_EQ(choose_image_size(run), nn::Size2d(28));
  run.options.input.epoch_sizes = {{0, {16, 20}}, {5, {32, 36}}};
  EXPECT_EQ(choose_image_size(run), nn::Size2d(32, 36)) << "the last one";
}

TEST(ImageSizeOfARun, OfAnEvaluationIsThatOfItsCheckpoint) {
  PreparedRun run = run_of(Dialect::kTfCnnBenchmarks, RunMode::kEvaluation);
  const auto checkpoint = std::make_shared<OpenedModel>();
  run.checkpoint = checkpoint;
  run.options.input.epoch_sizes = {{0, {16, 20}}, {5, {32, 36}}};
  EXPECT_EQ(choose_image_size(run), nn::Size2d(28)) << "it is not said";
  checkpoint->image_size = {40, 44};
  EXPECT_EQ(choose_image_size(run), nn::Size2d(40, 44));
}

// Five seconds, where each process has four, however short its run is.
TEST(Prepare, LetsALongTrainingMeasureKernelsForLonger) {
  TfCnnOptions options;
  options.model = "lenet";
  options.batch_size = 8;
  options.device.gpu = false;
  options.steps.num_batches = 1;
  options.steps.num_warmup_batches = 0;
  const PreparedRun run = prepare(options);
  const double flops = 8 * train::image_flops(run.graph, /*trains=*/true);
  const auto seconds = [&](int64_t steps) {
    return nn::MeasuringTime::seconds_of(flops * static_cast<double>(steps), run.threads.intra_op_threads);
  };
  options.steps.num_batches = static_cast<int64_t>(5 / (seconds(100) / 100)) + 1;
  const double expected = seconds(*options.steps.num_batches);
  EXPECT_NEAR(expected, 5, 0.1);
  prepare(options);
  EXPECT_GE(nn::MeasuringTime::instance().allowed(), 0.999 * expected);
}

}  // namespace
}  // namespace trainyard::frontends::prepare_test
