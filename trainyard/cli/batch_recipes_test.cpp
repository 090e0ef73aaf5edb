// Mixup, CutMix, repeated augmentation, growing images and distillation through the command line, on the embedded data
// set: a stopped run that goes on has the bits of one that was not stopped.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/cli/testing/shapes_suite.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::cli::batch_recipes_test {
namespace {

using ::testing::HasSubstr;

class BatchRecipes : public ShapesSuite {
 protected:
  // 120 images in batches of 8: an epoch is 15 steps.
  Arguments arguments(const std::string& train_dir, const Arguments& more = {}) const {
    return with_flags({"train", "--model=resnet20", "--data_dir=" + shared->file("shapes"), "--device=cpu",
                       "--batch_size=8", "--display_every=5", "--init_learning_rate=0.05", "--optimizer=tf_nesterov",
                       "--num_intra_threads=1", "--train_dir=" + temp_.file(train_dir)},
                      more);
  }
  CommandResult train(const std::string& train_dir, const Arguments& more = {}) const {
    return run_command(arguments(train_dir, more));
  }
  std::string why(const Arguments& more) const {
    const CommandResult result = train("refused", more);
    EXPECT_EQ(result.code, kUsage) << result.err;
    return result.err;
  }
  // Names, shapes and checksums of all that continues the run.
  std::string content(const std::string& train_dir) const {
    return core::local_file_system().read_file(
        core::join_path(train::find_checkpoint(temp_.file(train_dir)).path, "manifest.json"));
  }
  // Trains 22 steps at once, and in parts with other numbers of threads; the results must be the same.
  std::string expect_resumed_alike(const std::string& name, const Arguments& flags) const {
    const auto run = [&](const std::string& directory, const Arguments& more) {
      const CommandResult result = train(directory, with_flags(flags, more));
      EXPECT_EQ(result.code, kSuccess) << result.err;
    };
    run(name, {"--num_batches=22", "--datasets_num_private_threads=1"});
    run(name + "_parts", {"--num_batches=7", "--datasets_num_private_threads=3"});
    run(name + "_parts", {"--num_batches=18", "--datasets_num_private_threads=2"});
    run(name + "_parts", {"--num_batches=22", "--datasets_num_private_threads=2"});
    EXPECT_EQ(content(name + "_parts"), content(name)) << name;
    return content(name);
  }

  core::TempDir temp_;
};

TEST_F(BatchRecipes, GoOnWithTheBitsOfAWholeRun) {
  const std::string plain = expect_resumed_alike("plain", {});
  EXPECT_NE(expect_resumed_alike("mixup", {"--mixup_alpha=0.4", "--label_smoothing=0.1"}), plain);
  EXPECT_NE(expect_resumed_alike("repeated", {"--repeated_augmentation=3"}), plain);
  EXPECT_NE(expect_resumed_alike("growing", {"--progressive_sizes=0:24,1:32"}), plain);
  const Arguments all = {"--mixup_alpha=0.2",
                         "--cutmix_alpha=1",
                         "--mixup_prob=0.8",
                         "--mixup_switch_prob=0.4",
                         "--label_smoothing=0.1",
                         "--repeated_augmentation=2",
                         "--progressive_sizes=0:24,1:32"};
  EXPECT_NE(expect_resumed_alike("all", all), plain);
  EXPECT_NE(expect_resumed_alike("all_on_two",
                                 with_flags(all, {"--num_gpus=2", "--batch_size=4", "--variable_update=replicated"})),
            plain);
}

// Also of a run that ends before its images have that size.
TEST_F(BatchRecipes, BatchNormsAreRecalibratedOnImagesOfTheModelsSize) {
  const Arguments flags = {"--progressive_sizes=0:24,9:32", "--recalibrate_batch_norm=2"};
  const CommandResult trained = train("run", with_flags(flags, {"--num_batches=3"}));
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("recalibrating the batch norms over 2 batches"));
  expect_resumed_alike("averaged",
                       with_flags(flags, {"--swa_start_epoch=0", "--average_every=3", "--mixup_alpha=0.2"}));
}

TEST_F(BatchRecipes, EvaluationsTakeTheImagesAsTheyAre) {
  const Arguments flags = {"--num_batches=4", "--mixup_alpha=0.4", "--repeated_augmentation=2",
                           "--progressive_sizes=0:24,9:32", "--eval_during_training_every_n_steps=4"};
  const CommandResult trained = train("run", flags);
  ASSERT_EQ(trained.code, kSuccess) << trained.err;
  EXPECT_EQ(count_lines(trained.out, "^Accuracy @ 1 = .* \\[36 examples\\]$"), 1) << trained.out;
  const auto line = [&](const Arguments& more) {
    Arguments evaluate = arguments("run", more);
    evaluate[0] = "eval";
    const CommandResult result = run_command(evaluate);
    EXPECT_EQ(result.code, kSuccess) << result.err;
    const size_t begin = result.out.find("Accuracy @ 1");
    return result.out.substr(begin, result.out.find('\n', begin) - begin);
  };
  EXPECT_EQ(line({}), line({"--mixup_alpha=0.4", "--repeated_augmentation=2", "--progressive_sizes=0:24,9:32"}));
  EXPECT_THAT(trained.out, HasSubstr(line({}).substr(0, 20)));
}

// Images of several sizes cost differently, so that no rate of floating point operations follows from their number.
TEST_F(BatchRecipes, OfSeveralSizesTellNoRateOfTheModel) {
  const CommandResult one = train("none", {"--num_batches=2", "--train_dir="});
  ASSERT_EQ(one.code, kSuccess) << one.err;
  EXPECT_THAT(one.err, HasSubstr("compute: "));
  const CommandResult several = train("none", {"--num_batches=2", "--train_dir=", "--progressive_sizes=0:24,9:32"});
  ASSERT_EQ(several.code, kSuccess) << several.err;
  EXPECT_THAT(several.err, ::testing::Not(HasSubstr("compute: ")));
}

TEST_F(BatchRecipes, LearnFromATeacher) {
  ASSERT_EQ(train("teacher", {"--num_batches=20", "--model=resnet20_v2"}).code, kSuccess);
  const std::string from = "--distill_from=" + temp_.file("teacher");
  const std::string plain = expect_resumed_alike("alone", {});
  const std::string taught = expect_resumed_alike("taught", {from, "--distill_weight=0.7", "--distill_temperature=4"});
  EXPECT_NE(taught, plain);
  EXPECT_EQ(taught.find("teacher"), std::string::npos) << "it is no part of the checkpoint";
  EXPECT_NE(expect_resumed_alike("with_all", {from, "--mixup_alpha=0.2", "--progressive_sizes=0:24,1:32"}), taught);
  const CommandResult result = train("log", {from, "--num_batches=1"});
  EXPECT_THAT(result.err, HasSubstr("teacher: resnet20_v2 from " + temp_.file("teacher")));
  EXPECT_THAT(why({from, "--distill_model=resnet20"}), HasSubstr("resnet20_v2"));
  EXPECT_THAT(why({from, "--num_classes=20"}), HasSubstr("classes"));
  EXPECT_THAT(why({from, "--forward_only"}), HasSubstr("--distill_from cannot be used"));
  EXPECT_THAT(why({"--distill_temperature=2"}), HasSubstr("without a teacher"));
  EXPECT_THAT(why({from, "--distill_temperature=0"}), HasSubstr("temperature above 0"));
  const CommandResult nowhere = train("nowhere", {"--distill_from=" + temp_.file("none")});
  EXPECT_NE(nowhere.code, kSuccess);
  EXPECT_THAT(nowhere.err, HasSubstr("--distill_from"));
}

TEST_F(BatchRecipes, LearnEachClassByItself) {
  const Arguments mixed = {"--mixup_alpha=0.4", "--label_smoothing=0.1"};
  const std::string softmax = expect_resumed_alike("softmax", mixed);
  const std::string bce = expect_resumed_alike("bce", with_flags(mixed, {"--loss=bce"}));
  EXPECT_NE(bce, softmax);
  EXPECT_NE(expect_resumed_alike("hard", with_flags(mixed, {"--loss=bce", "--bce_target_threshold=0.2"})), bce);
  EXPECT_NE(expect_resumed_alike("sum", with_flags(mixed, {"--loss=bce", "--bce_sum"})), bce);
  // Of 125 images five classes have one more than the other seven.
  data::write_shapes({.train_count = 125, .validation_count = 36}, temp_.file("uneven"));
  const Arguments uneven = with_flags(mixed, {"--loss=bce", "--data_dir=" + temp_.file("uneven")});
  ASSERT_EQ(train("unweighed", with_flags(uneven, {"--num_batches=22"})).code, kSuccess);
  EXPECT_NE(expect_resumed_alike("weighed", with_flags(uneven, {"--class_weights=balanced"})), content("unweighed"));
  EXPECT_THAT(why({"--bce_target_threshold=0.2"}), HasSubstr("--bce_target_threshold requires --loss=bce"));
  EXPECT_THAT(why({"--bce_sum"}), HasSubstr("--bce_sum requires --loss=bce"));
  EXPECT_THAT(why({"--loss=bce", "--bce_target_threshold=1"}), HasSubstr("bce_target_threshold"));
}

TEST_F(BatchRecipes, HaveRatesByLayersAndGroups) {
  const std::string plain = expect_resumed_alike("one_rate", {});
  const std::string layered = expect_resumed_alike("layered", {"--layer_decay=0.65"});
  EXPECT_NE(layered, plain);
  const Arguments groups = {"--layer_decay=0.65", "--parameter_groups=fc.*:10,*.bias:1:0"};
  const std::string grouped = expect_resumed_alike("grouped", groups);
  EXPECT_NE(grouped, layered);
  // Two replicas, whose updates one process makes or divides.
  const Arguments two = with_flags(groups, {"--num_gpus=2", "--batch_size=4", "--variable_update=replicated"});
  EXPECT_NE(expect_resumed_alike("two", two), layered);
}

TEST_F(BatchRecipes, SayWhatTheyCannotDo) {
  EXPECT_THAT(why({"--mixup_alpha=0.2", "--batch_size=7"}), HasSubstr("even"));
  EXPECT_THAT(why({"--mixup_alpha=0.2", "--data_dir=", "--synthetic"}), HasSubstr("--mixup_alpha cannot be used"));
  EXPECT_THAT(why({"--repeated_augmentation=2", "--forward_only"}),
              HasSubstr("--repeated_augmentation cannot be used"));
  EXPECT_THAT(why({"--mixup_prob=0.5"}), HasSubstr("nothing to choose"));
  EXPECT_THAT(why({"--cutmix_alpha=1", "--mixup_switch_prob=0.5"}), HasSubstr("nothing to choose"));
  EXPECT_THAT(why({"--progressive_sizes=0:24,1:32", "--image_size=24"}), HasSubstr("not the last one"));
  EXPECT_THAT(why({"--progressive_sizes=3:24"}), HasSubstr("epoch 0"));
  EXPECT_THAT(why({"--progressive_sizes=0:24,1:32", "--model=alexnet"}),
              HasSubstr("--progressive_sizes cannot be used"));
}

}  // namespace
}  // namespace trainyard::cli::batch_recipes_test
