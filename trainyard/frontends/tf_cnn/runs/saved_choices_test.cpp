// What a run takes from the checkpoint or the model that it begins with, and what of it rank 0 reads for all processes.
#include "trainyard/frontends/tf_cnn/saved_choices.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/tensors.h"
#include "trainyard/core/flags/flag_value.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends::saved_choices_test {
namespace {

using ::testing::HasSubstr, ::testing::Not;

// A weight of seven outputs, and what else a test saves.
class SavedFacts : public core::Stateful {
 public:
  explicit SavedFacts(std::function<void(core::StateWriter&)> more) : more_(std::move(more)) {}
  void save(core::StateWriter& writer) const override {
    writer.tensor("model/fc.weight", core::new_tensor({7, 3}));
    more_(writer);
  }
  void load(const core::StateReader&) override {}

 private:
  std::function<void(core::StateWriter&)> more_;
};

// Returns the path of the checkpoint.
std::string save(const std::string& directory, const std::function<void(core::StateWriter&)>& more) {
  return train::CheckpointStore(directory)
      .save(5, {.model = "resnet20", .dataset = "cifar10", .num_classes = 7}, SavedFacts(more))
      .path;
}

// Calls `check` with what each of two ranks reads, of which the first alone knows the directory.
void on_both(const std::string& directory, const std::function<void(const SavedChoices& choices, int rank)>& check) {
  parallel::on_ranks(2, [&](const std::shared_ptr<parallel::ProcessGroup>& group) {
    PreparedRun run;
    run.device.processes = group;
    if (group->rank() == 0) run.options.saving.train_dir = directory;
    check(read_saved_choices(run), group->rank());
  });
}

TEST(SavedChoicesOfRanks, AreThoseOfTheCheckpointOnAllRanks) {
  const core::TempDir temp;
  data::TransformOptions input;
  input.height = 40;
  input.width = 48;
  input.resize_method = "bicubic";
  input.resize_antialias = true;
  input.eval_resize_size = 56;
  input.eval_scaled_decode = true;
  input.resize_convention = data::ResizeConvention::kDali;
  input.normalization = {.scale = {0.5F, 0.25F, 0.125F}, .shift = {-1, -2, -3}};
  const std::string path = save(temp.path(), [&](core::StateWriter& writer) {
    train::save_input(input, "torchvision", writer);
    train::save_division({.validation = 0.25}, writer);
    train::save_weights_of(false, writer);
    train::save_found_batch(24, writer);
    train::save_fine_tuning({.batch_size = 8, .num_epochs = 9, .early_stop = 4}, writer);
  });
  on_both(temp.path(), [&](const SavedChoices& choices, int rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(choices.origin, path);
    EXPECT_TRUE(choices.continues);
    EXPECT_EQ(choices.model, "resnet20");
    EXPECT_EQ(choices.dataset, "cifar10");
    EXPECT_EQ(choices.num_classes, 7);
    EXPECT_EQ(choices.image_size, nn::Size2d(40, 48));
    EXPECT_FALSE(choices.has_scales);
    EXPECT_EQ(choices.found_batch, 24);
    ASSERT_TRUE(choices.fine_tuning);
    EXPECT_EQ(choices.fine_tuning->batch_size, 8);
    EXPECT_EQ(choices.fine_tuning->num_epochs, 9);
    EXPECT_EQ(choices.fine_tuning->early_stop, 4);
    EXPECT_EQ(choices.division, (data::Division{.validation = 0.25}));
    EXPECT_EQ(choices.averaged_weights, false);
    ASSERT_TRUE(choices.input);
    EXPECT_EQ(choices.input->preprocessor, "torchvision");
    EXPECT_EQ(choices.input->origin, rank == 0 ? path : "") << "the first rank says it";
    const data::TransformOptions& read = choices.input->input;
    EXPECT_FALSE(read.training);
    EXPECT_EQ(nn::Size2d(read.height, read.width), nn::Size2d(40, 48));
    EXPECT_EQ(read.resize_method, "bicubic");
    EXPECT_TRUE(read.resize_antialias);
    EXPECT_FALSE(read.resize_half_pixel_centers);
    EXPECT_EQ(read.eval_resize_size, 56);
    EXPECT_EQ(read.eval_central_part, 0);
    EXPECT_TRUE(read.eval_scaled_decode);
    EXPECT_FALSE(read.exif_orientation);
    EXPECT_EQ(read.resize_convention, data::ResizeConvention::kDali);
    EXPECT_EQ(read.normalization, input.normalization);
  });
}

TEST(SavedChoicesOfRanks, WhatIsNotSavedIsNotSaidOnAnyRank) {
  const core::TempDir temp, empty;
  data::TransformOptions input;
  input.height = input.width = 32;
  input.resize_half_pixel_centers = true;
  input.eval_central_part = 0.875F;
  input.exif_orientation = true;
  save(temp.path(), [&](core::StateWriter& writer) { train::save_input(input, "default", writer); });
  on_both(temp.path(), [](const SavedChoices& choices, int rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(choices.found_batch, 0);
    EXPECT_FALSE(choices.fine_tuning);
    EXPECT_FALSE(choices.division);
    EXPECT_FALSE(choices.averaged_weights);
    ASSERT_TRUE(choices.input);
    EXPECT_FALSE(choices.input->input.resize_antialias);
    EXPECT_TRUE(choices.input->input.resize_half_pixel_centers);
    EXPECT_EQ(choices.input->input.eval_central_part, 0.875F);
    EXPECT_FALSE(choices.input->input.eval_scaled_decode);
    EXPECT_TRUE(choices.input->input.exif_orientation);
  });
  on_both(empty.path(), [](const SavedChoices& choices, int rank) {
    EXPECT_EQ(choices.origin, "") << rank;
    EXPECT_FALSE(choices.continues) << rank;
    EXPECT_FALSE(choices.input) << rank;
  });
}

// A training that would replace the run continues from nothing; forward passes take the run as it is.
TEST(SavedChoicesOfARun, AreThoseOfItsNewestCheckpoint) {
  const core::TempDir temp;
  std::string newest;
  for (const int64_t step : {5, 12}) {
    const SavedFacts facts([step](core::StateWriter& writer) { train::save_found_batch(step, writer); });
    newest = train::CheckpointStore(temp.path())
                 .save(step, {.model = "resnet20", .dataset = "cifar10", .num_classes = 7}, facts)
                 .path;
  }
  PreparedRun run;
  run.options.saving.train_dir = temp.path();
  EXPECT_EQ(read_saved_choices(run).origin, newest);
  EXPECT_EQ(read_saved_choices(run).found_batch, 12);
  run.options.saving.existing_run = train::ExistingRun::kDelete;
  EXPECT_EQ(read_saved_choices(run).origin, "");
  EXPECT_FALSE(read_saved_choices(run).continues);
  run.options.mode = RunMode::kForwardOnly;
  EXPECT_EQ(read_saved_choices(run).origin, newest);
  run.options.saving.train_dir = "";
  EXPECT_EQ(read_saved_choices(run).origin, "");
}

// Takes what is saved, and returns the log.
std::string take(PreparedRun& run) {
  ::testing::internal::CaptureStderr();
  take_saved_choices(run);
  return ::testing::internal::GetCapturedStderr();
}

// A run that continues from a checkpoint.
PreparedRun continued() {
  PreparedRun run;
  run.options.dialect = Dialect::kTrainyard;
  run.options.model = "lenet";
  run.saved.origin = "run/model.ckpt-5";
  run.saved.continues = true;
  run.saved.model = "lenet";
  return run;
}

TEST(TakenChoices, AreThoseThatNoFlagSays) {
  PreparedRun run = continued();
  EXPECT_EQ(take(run), "") << "there is nothing to say";
  run.options.model = "";
  run.options.flags.all = {{"model", core::FlagValue(std::string("x"))},
                           {"input_preprocessor", core::FlagValue(std::string("x"))},
                           {"data_dir", core::FlagValue(std::string("x"))}};
  run.saved.image_size = {20, 24};
  run.saved.input = {.preprocessor = "torchvision", .choice = "as torchvision makes them"};
  run.saved.averaged_weights = false;
  const std::string log = take(run);
  EXPECT_THAT(log, HasSubstr("taken from run/model.ckpt-5: --model=lenet, --image_size=20x24, "
                             "--input_preprocessor=torchvision, --weights_of=last\n"));
  EXPECT_THAT(log, HasSubstr("run/model.ckpt-5: as torchvision makes them\n"));
  EXPECT_EQ(run.options.model, "lenet");
  EXPECT_EQ(run.options.average.averaged_weights, false);
  ASSERT_TRUE(run.options.input.images.trained.has_value());
  EXPECT_EQ(run.options.input.images.trained->preprocessor, "torchvision");
  EXPECT_EQ(run.options.flags.all[0].second, core::FlagValue(std::string("lenet"))) << "files tell what is taken";
  EXPECT_EQ(run.options.flags.all[1].second, core::FlagValue(std::string("torchvision")));
  EXPECT_EQ(run.options.flags.all[2].second, core::FlagValue(std::string("x")));

  PreparedRun said = continued();
  said.saved = run.saved;
  said.options.image_size = 32;
  said.options.input.images.input_preprocessor = "default";
  said.options.average.averaged_weights = true;
  EXPECT_THAT(take(said), Not(HasSubstr("taken from")));
  EXPECT_EQ(said.options.average.averaged_weights, true);
  PreparedRun growing = continued();
  growing.saved.image_size = {20, 24};
  growing.options.input.epoch_sizes = {{0, {16, 16}}, {3, {24, 24}}};
  EXPECT_THAT(take(growing), Not(HasSubstr("--image_size"))) << "the last of the sizes counts";
  PreparedRun benchmark = continued();
  benchmark.saved = run.saved;
  benchmark.options.dialect = Dialect::kTfCnnBenchmarks;
  EXPECT_EQ(take(benchmark), "");
  EXPECT_FALSE(benchmark.options.input.images.trained.has_value());
}

TEST(TakenChoices, OtherWeightsThanThoseOfTheTrainingsEvaluationsAreWarnedAbout) {
  PreparedRun run = continued();
  run.options.average.averaged_weights = true;
  EXPECT_EQ(take(run), "") << "it has averaged none";
  run.saved.averaged_weights = true;
  EXPECT_EQ(take(run), "");
  run.saved.averaged_weights = false;
  EXPECT_THAT(take(run),
              HasSubstr("--weights_of=average, and run/model.ckpt-5 was evaluated with --weights_of=last\n"));
  run.options.average.averaged_weights = false;
  run.saved.averaged_weights = true;
  EXPECT_THAT(take(run),
              HasSubstr("--weights_of=last, and run/model.ckpt-5 was evaluated with --weights_of=average\n"));
  run.saved.continues = false;
  EXPECT_EQ(take(run), "") << "the training begins with them";
}

TEST(TakenChoices, AFineTuningThatContinuesWithoutItsFlagIsWarnedAbout) {
  PreparedRun run = continued();
  run.saved.fine_tuning.emplace();
  EXPECT_THAT(take(run), HasSubstr("run/model.ckpt-5 was begun with --finetune, which this command lacks"));
  run.options.mode = RunMode::kForwardOnly;
  EXPECT_EQ(take(run), "");
  run.options.mode = RunMode::kTraining;
  run.options.fine_tune.emplace();
  EXPECT_EQ(take(run), "");
}

TEST(TakenChoices, TheImagesAreDividedAsTheTrainingDividedThem) {
  for (const Dialect dialect : {Dialect::kTrainyard, Dialect::kTfCnnBenchmarks}) {
    PreparedRun run = continued();
    run.options.dialect = dialect;
    run.saved.division = data::Division{.folds = 3, .fold = 1};
    EXPECT_EQ(take(run), "") << "there are no images to divide";
    run.options.input.data_dir = "photos";
    PreparedRun whole = run, other = run;
    EXPECT_THAT(take(run), HasSubstr("the images are divided as the training divided them: --folds=3 --fold=1\n"));
    EXPECT_EQ(run.options.input.division, (data::Division{.folds = 3, .fold = 1}));
    EXPECT_TRUE(run.options.input.division_is_saved);
    whole.options.input.split_class_folders = false;
    EXPECT_EQ(take(whole), "");
    EXPECT_FALSE(whole.options.input.division.has_value());
    other.options.input.division = data::Division{.folds = 3, .fold = 2};
    EXPECT_EQ(take(other), "") << "the session refuses it";
    EXPECT_EQ(other.options.input.division, (data::Division{.folds = 3, .fold = 2}));
    EXPECT_FALSE(other.options.input.division_is_saved);
  }
}

TEST(TakenChoices, AnEvaluationWarnsOfAnotherDivision) {
  PreparedRun run = continued();
  run.options.mode = RunMode::kEvaluation;
  run.options.input.data_dir = "photos";
  const auto checkpoint = std::make_shared<OpenedModel>();
  checkpoint->division = data::Division{.folds = 3, .fold = 1};
  run.checkpoint = checkpoint;
  PreparedRun same = run, other = run;
  EXPECT_THAT(take(run), HasSubstr("the images are divided as the training divided them: --folds=3 --fold=1\n"));
  EXPECT_TRUE(run.options.input.division_is_saved);
  same.options.input.division = checkpoint->division;
  EXPECT_EQ(take(same), "");
  other.options.input.division = data::Division{.folds = 3, .fold = 2};
  EXPECT_THAT(take(other), HasSubstr("the training divided its images by --folds=3 --fold=1: this evaluation may have "
                                     "images that were trained on\n"));
}

}  // namespace
}  // namespace trainyard::frontends::saved_choices_test
