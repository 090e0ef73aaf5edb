// Runs on images of another size than the model's own: what a checkpoint remembers, what goes on from it, and what is
// refused.
#include "trainyard/frontends/input/image_size.h"

#include <sstream>
#include <string>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/model/model_metadata.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/checkpoint/position_embedding.h"

namespace trainyard::frontends::image_size_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Patches of 4 x 4 pixels, with a vector for each.
const models::ModelRegistration kPatches(
    {.name = "patches_of_the_test",
     .family = models::DatasetFamily::kCifar10,
     .image_size = 32,
     .image_size_multiple = 4,
     .build = [](const models::ModelOptions& options) {
       nn::GraphBuilder b({.image = options.image_shape(), .name = "patches_of_the_test"});
       auto x = b.convolution("patches", b.input(), {.out_channels = 6, .kernel = 4, .stride = 4});
       x = b.position_embedding("positions", b.class_token("token", x, {}), {});
       return b.build(b.linear("head", b.global_average_pool("pool", x), {.out_features = options.num_classes}));
     }});

class ImageSizeOfRuns : public ::testing::Test {
 protected:
  TfCnnOptions options(const std::string& model, nn::Size2d size, int64_t steps) const {
    TfCnnOptions options;
    options.dialect = Dialect::kTrainyard;
    options.model = model;
    options.image_size = size;
    options.input.data_name = model == "lenet" ? "imagenet" : "cifar10";
    options.batch_size = 2;
    options.steps.num_batches = steps;
    options.steps.num_warmup_batches = 0;
    options.device.gpu = false;
    options.update.optimizer = "momentum";
    options.learning_rate.init_learning_rate = 0.001;
    options.saving.train_dir = temp_.file("run");
    return options;
  }
  TfCnnOptions evaluation(const std::string& model, nn::Size2d size) const {
    TfCnnOptions evaluated = options(model, size, 0);
    evaluated.mode = RunMode::kEvaluation;
    evaluated.steps.num_batches = std::nullopt;
    evaluated.steps.num_eval_batches = 1;
    return evaluated;
  }
  static std::string run(const TfCnnOptions& options) {
    std::ostringstream out;
    BenchmarkCnn(options).run(out);
    return out.str();
  }
  static std::string refused(const TfCnnOptions& options) {
    return core::message_of([&] { run(options); }, core::ErrorCode::kInvalidArgument);
  }

  const core::TempDir temp_;
};

TEST_F(ImageSizeOfRuns, IsRememberedByTheCheckpoint) {
  EXPECT_THAT(run(options("lenet", {20, 24}, 2)), HasSubstr("images of 20x24, "));
  EXPECT_EQ(train::read_checkpoint_facts(train::find_checkpoint(temp_.file("run"))).image_size, nn::Size2d(20, 24));

  testing::internal::CaptureStderr();
  const PreparedRun resumed = prepare(options("lenet", 0, 3));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("/model.ckpt-2: --image_size=20x24"));
  EXPECT_EQ(resumed.graph.input_shape(), (nn::Shape{3, 20, 24}));
  EXPECT_EQ(resumed.input.transform.height, 20);
  EXPECT_EQ(resumed.input.transform.width, 24);
  EXPECT_THAT(run(options("lenet", 0, 3)), HasSubstr("\n3\timages/sec"));
  EXPECT_EQ(prepare(evaluation("lenet", 0)).graph.input_shape(), (nn::Shape{3, 20, 24}));
  EXPECT_THAT(run(evaluation("lenet", 0)), HasSubstr("images of 20x24, "));

  TrainedModel trained = load_trained_model({.path = temp_.file("run")});
  EXPECT_EQ(trained.executor->graph().input_shape(), (nn::Shape{3, 20, 24}));
  EXPECT_FALSE(trained.label_sets);
  trained.label_sets = true;
  train::save_weights(temp_.file("w"), *trained.parameters, metadata_of(trained));
  const TrainedModel of_file = load_trained_model({.path = temp_.file("w")});
  EXPECT_EQ(of_file.executor->graph().input_shape(), (nn::Shape{3, 20, 24}));
  EXPECT_EQ(of_file.input.height, 20);
  EXPECT_TRUE(of_file.label_sets) << "as the file says";
}

TEST_F(ImageSizeOfRuns, WeightsThatDependOnItFitNoOther) {
  run(options("lenet", {20, 24}, 2));
  const auto says = AllOf(HasSubstr("the weights are for images of another size, which fc1.weight of lenet depends on"),
                          HasSubstr("model.ckpt-2"), HasSubstr("expected 20x24, got 28x24"),
                          HasSubstr("leave --image_size out, or pass --image_size=20x24"));
  EXPECT_THAT(refused(evaluation("lenet", {28, 24})), says);
  EXPECT_THAT(refused(options("lenet", {28, 24}, 3)), AllOf(says, HasSubstr("begin another run")));
  const auto load = [&] { load_trained_model({.path = temp_.file("run"), .image_size = {28, 24}}); };
  EXPECT_THAT(core::message_of(load), says);
  run(options("lenet", {20, 24}, 3));
}

TEST_F(ImageSizeOfRuns, NetworksThatEndInAMeanTakeOthers) {
  run(options("resnet20", {16, 24}, 2));
  EXPECT_THAT(run(evaluation("resnet20", {24, 16})), HasSubstr("images of 24x16, "));
  EXPECT_THAT(run(options("resnet20", 40, 3)), AllOf(HasSubstr("images of 40x40, "), HasSubstr("\n3\timages/sec")));
  EXPECT_EQ(train::read_checkpoint_facts(train::find_checkpoint(temp_.file("run"))).image_size, nn::Size2d(40));
  // The model's own size, which is not the one of the checkpoint.
  EXPECT_THAT(run(evaluation("resnet20", 32)), HasSubstr("images of 32x32, "));
}

TEST_F(ImageSizeOfRuns, PositionEmbeddingsFollowIt) {
  run(options("patches_of_the_test", {16, 16}, 2));
  const auto positions = [&](nn::Size2d size) {
    const TrainedModel trained = load_trained_model({.path = temp_.file("run"), .image_size = size});
    return trained.parameters->value(*trained.parameters->find("positions")).clone();
  };
  const at::Tensor saved = positions(0);
  ASSERT_EQ(saved.size(1), 1 + 4 * 4);
  EXPECT_TRUE(
      at::equal(positions({12, 24}),
                train::interpolate_positions(saved, {.parameter = "positions", .patches = {3, 6}, .saved = {4, 4}})));
  EXPECT_TRUE(
      at::equal(positions({8, 32}),
                train::interpolate_positions(saved, {.parameter = "positions", .patches = {2, 8}, .saved = {4, 4}})));
  run(evaluation("patches_of_the_test", {12, 24}));
  // The optimizer's state is not interpolated. 2 x 8 patches are as many as 4 x 4.
  for (const nn::Size2d size : {nn::Size2d{12, 24}, {8, 32}}) {
    EXPECT_THAT(refused(options("patches_of_the_test", size, 3)),
                AllOf(HasSubstr("which positions of patches_of_the_test depends on"), HasSubstr("--weights=FILE")));
  }

  // A training that starts from them.
  const TrainedModel trained = load_trained_model({.path = temp_.file("run")});
  train::save_weights(temp_.file("w"), *trained.parameters, metadata_of(trained));
  TfCnnOptions started = options("patches_of_the_test", {8, 32}, 1);
  started.learning_rate.init_learning_rate = 0;
  started.weights = temp_.file("w");
  started.saving.train_dir = temp_.file("second");
  run(started);
  const TrainedModel second = load_trained_model({.path = temp_.file("second")});
  EXPECT_TRUE(at::equal(second.parameters->value(*second.parameters->find("positions")), positions({8, 32})));
}

TEST_F(ImageSizeOfRuns, WhatAModelCannotHaveIsRefusedBeforeAnythingRuns) {
  EXPECT_THAT(refused(options("patches_of_the_test", {16, 18}, 2)), HasSubstr("multiples of 4"));
  EXPECT_THAT(refused(options("lenet", {3, 28}, 2)), HasSubstr("at least 4x4"));
  EXPECT_EQ(core::local_file_system().exists(temp_.file("run")), false);
}

}  // namespace
}  // namespace trainyard::frontends::image_size_test
