// What a run's checkpoints hold in addition to its trainer, and which of them it refuses to continue from.
#include "trainyard/frontends/session/saved_run.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/tensorpack/trainers.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"
#include "trainyard/train/session/resume.h"

namespace trainyard::frontends::saved_run_test {
namespace {

using ::testing::HasSubstr;

const train::CheckpointInfo kCheckpoint{.path = "run/model.ckpt-5", .global_step = 5};

nn::Graph graph_of(const std::string& model, nn::Size2d size) {
  return models::build_model(model, "cifar10", {.num_classes = 10, .image_size = size});
}

// Of images of 32 x 32 pixels with these classes.
train::CheckpointFacts facts_of(std::vector<std::string> classes, const std::string& dataset = "cifar10",
                                const std::string& model = "resnet20") {
  return {.identity = {.model = model, .dataset = dataset, .num_classes = 10},
          .classes = std::move(classes),
          .image_size = 32};
}
SavedRunOptions run_of(std::vector<std::string> classes, const std::string& dataset = "cifar10",
                       const std::string& model = "resnet20") {
  const auto count = static_cast<int64_t>(classes.size());
  return {.identity = {.model = model, .dataset = dataset, .num_classes = 10},
          .classes = {.names = std::move(classes)},
          .data_dir = "data/train",
          .class_count = count};
}

// Returns what the check of a checkpoint with these facts says.
std::string refusal(const SavedRunOptions& run, const train::CheckpointFacts& facts, const nn::Graph& graph) {
  const std::unique_ptr<train::Trainer> trainer = NoOpTrainer().make(TrainConfig());
  const SavedRun state(*trainer, run);
  const train::ResumeOptions options = resume_options(state, graph, "another train_dir");
  return core::message_of([&] { options.check(kCheckpoint, facts); });
}
std::string refusal(const SavedRunOptions& run, const train::CheckpointFacts& facts) {
  return refusal(run, facts, graph_of(run.identity.model, 32));
}

TEST(SavedRun, OtherClassesAreRefusedByName) {
  EXPECT_EQ(refusal(run_of({"cat", "dog"}), facts_of({"cat", "dog"})), "no error");
  const std::string renamed = refusal(run_of({"cat", "dog"}), facts_of({"cat", "cow"}));
  EXPECT_THAT(renamed, HasSubstr("other classes than those of run/model.ckpt-5"));
  EXPECT_THAT(renamed, HasSubstr("data/train"));
  EXPECT_THAT(renamed, HasSubstr("train on the same classes, or begin another run: another train_dir"));
  SavedRunOptions without_data = run_of({"cat", "dog"});
  without_data.class_count = 0;
  EXPECT_EQ(refusal(without_data, facts_of({"cat", "cow"})), "no error");
  EXPECT_EQ(refusal(run_of({"cat", "dog"}), facts_of({})), "no error") << "classes of CIFAR-10 may have numbers";
  EXPECT_EQ(refusal(run_of({"cat", "dog"}), facts_of({"cat", "cow"}, "shapes")), "no error")
      << "the load says that it is of another data set";
}

// Without names the classes are all outputs, but for the background's.
TEST(SavedRun, ClassesWithoutNamesAreCounted) {
  SavedRunOptions run = run_of({"a", "b", "c", "d", "e", "f", "g", "h", "i"}, "imagenet", "other");
  run.classes.first_output = 1;
  const train::CheckpointFacts numbers = facts_of({}, "imagenet");
  const nn::Graph graph = graph_of("resnet20", 32);
  EXPECT_EQ(refusal(run, numbers, graph), "no error") << "nine of ten outputs";
  run.classes.names.pop_back();
  run.class_count = 8;
  EXPECT_THAT(refusal(run, numbers, graph), HasSubstr("one has names, the other numbers"));
}

TEST(SavedRun, AnotherDivisionIsRefused) {
  SavedRunOptions run = run_of({"cat", "dog"});
  train::CheckpointFacts facts = facts_of({"cat", "dog"});
  run.division = data::Division{.folds = 3, .fold = 1};
  EXPECT_EQ(refusal(run, facts),
            "the run divides its images in another way than the checkpoint's run: run/model.ckpt-5: expected no "
            "--validation_split and no --folds, got --folds=3 --fold=1; divide them as it did, or begin another run: "
            "another train_dir");
  facts.division = data::Division{.folds = 3, .fold = 2};
  EXPECT_THAT(refusal(run, facts), HasSubstr("expected --folds=3 --fold=2, got --folds=3 --fold=1"));
  run.trains = false;
  EXPECT_EQ(refusal(run, facts), "no error") << "an evaluation may look at any image";
  run.trains = true;
  run.class_count = 0;
  EXPECT_EQ(refusal(run, facts), "no error") << "there are no images to divide";
  run = run_of({"cat", "dog"});
  facts.division = data::Division();
  EXPECT_EQ(refusal(run, facts), "no error") << "what is not given is the usual one";
}

TEST(SavedRun, AnotherKindOfLabelsIsRefused) {
  SavedRunOptions run = run_of({"cat", "dog"});
  train::CheckpointFacts facts = facts_of({"cat", "dog"});
  facts.label_sets = true;
  EXPECT_EQ(refusal(run, facts),
            "the data have another kind of labels than the checkpoint's run: run/model.ckpt-5: expected any number of "
            "labels an image, got one label an image; use its data, or begin another run: another train_dir");
  run.label_sets = true;
  EXPECT_EQ(refusal(run, facts), "no error");
  run.label_sets = false;
  run.class_count = 0;
  EXPECT_EQ(refusal(run, facts), "no error") << "synthetic images have no labels to compare";
}

TEST(SavedRun, AnotherSizeOfImagesIsRefusedWhereWeightsDependOnIt) {
  EXPECT_THAT(
      refusal(run_of({}, "cifar10", "trivial"), facts_of({}, "cifar10", "trivial"), graph_of("trivial", {40, 36})),
      HasSubstr("run/model.ckpt-5: expected 32x32, got 40x36; leave --image_size out, or pass "
                "--image_size=32x32; or begin another run of that size: another train_dir"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(run_of({}), facts_of({}), graph_of("resnet20", {40, 36})), "no error");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("run/model.ckpt-5 was trained on images of 32x32; this run takes 40x36"));
  SavedRunOptions silent = run_of({});
  silent.tells_input = false;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(silent, facts_of({}), graph_of("resnet20", {40, 36})), "no error");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(SavedRun, ComparesTheOptimizersOfTrainings) {
  const std::unique_ptr<train::Trainer> trainer = NoOpTrainer().make(TrainConfig());
  const nn::Graph graph = graph_of("resnet20", 32);
  SavedRunOptions run = run_of({});
  run.optimizer = "lamb";
  const SavedRun training(*trainer, run);
  EXPECT_EQ(resume_options(training, graph).optimizer, "lamb");
  EXPECT_EQ(resume_options(training, graph).another_run, train::ResumeOptions().another_run);
  EXPECT_EQ(resume_options(training, graph, "elsewhere").another_run, "elsewhere");
  run.trains = false;
  const SavedRun evaluation(*trainer, run);
  EXPECT_EQ(resume_options(evaluation, graph).optimizer, "");
}

TEST(SavedRun, AnEvaluationTakesWhatTheTrainingHasSaved) {
  const std::unique_ptr<train::Trainer> trainer = NoOpTrainer().make(TrainConfig());
  SavedRunOptions run = run_of({"cat", "dog"});
  run.classes.first_output = 1;
  run.input.height = 24;
  run.input.width = 40;
  run.input.resize_method = "area";
  run.preprocessor = "dali";
  run.division = data::Division{.folds = 3, .fold = 1};
  run.label_sets = true;
  run.averaged_weights = false;
  run.optimizer = "lamb";
  core::MemoryState state;
  SavedRun(*trainer, run).save(state);
  SavedRun evaluation(*trainer, {.identity = run.identity, .trains = false});
  evaluation.load(state);
  const SavedRunOptions& read = evaluation.options();
  EXPECT_EQ(read.classes, run.classes);
  EXPECT_EQ(read.input.height, 24);
  EXPECT_EQ(read.input.width, 40);
  EXPECT_EQ(read.input.resize_method, "area");
  EXPECT_EQ(read.preprocessor, "dali");
  EXPECT_EQ(read.division, run.division);
  EXPECT_TRUE(read.label_sets);
  EXPECT_EQ(read.averaged_weights, false);
  EXPECT_EQ(read.optimizer, "lamb");
  SavedRun training(*trainer, {.identity = run.identity, .preprocessor = "torchvision", .optimizer = "sgd"});
  training.load(state);
  EXPECT_EQ(training.options().preprocessor, "torchvision") << "a training keeps its own";
  EXPECT_EQ(training.options().optimizer, "sgd");
  EXPECT_FALSE(training.options().division.has_value());
}

}  // namespace
}  // namespace trainyard::frontends::saved_run_test
