// What the processes of a run take from the checkpoint that rank 0 reads for all.
#include "trainyard/frontends/tf_cnn/saved_choices.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/tensors.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/parallel/testing/on_ranks.h"
#include "trainyard/train/checkpoint/checkpoint.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends::saved_choices_test {
namespace {

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

}  // namespace
}  // namespace trainyard::frontends::saved_choices_test
