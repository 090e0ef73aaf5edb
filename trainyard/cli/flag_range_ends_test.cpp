// Each flag with a range at the ends of it: an end that belongs to the range is accepted, one that does not is refused
// by name, and whatever is refused is refused before anything is written. number_flags_test.cpp goes beyond the ends.
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/cli/testing/cli.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/frontends/options/flag_ranges.h"
#include "trainyard/frontends/tf_cnn/flags.h"

namespace trainyard::cli::flag_range_ends_test {
namespace {

// What a flag needs beside it to have a meaning.
const std::map<std::string, Arguments> kCompanions = {
    {"average_every", {"--ema_decay=0.9"}},
    {"bce_target_threshold", {"--loss=bce"}},
    {"momentum_dampening", {"--optimizer=torch_momentum"}},
    {"rmsprop_decay", {"--optimizer=tf_rmsprop"}},
    {"rmsprop_momentum", {"--optimizer=tf_rmsprop"}},
    {"rmsprop_epsilon", {"--optimizer=tf_rmsprop"}},
    {"adam_beta1", {"--optimizer=tf_adam"}},
    {"adam_beta2", {"--optimizer=tf_adam"}},
    {"adam_epsilon", {"--optimizer=tf_adam"}},
    {"lars_trust_coefficient", {"--optimizer=lars"}},
    {"muon_momentum", {"--optimizer=muon_sgd"}},
    {"muon_steps", {"--optimizer=muon_sgd"}},
    {"lion_beta1", {"--optimizer=lion"}},
    {"lion_beta2", {"--optimizer=lion"}},
    {"lookahead_alpha", {"--lookahead_steps=2"}},
    {"lookahead_final_alpha", {"--lookahead_steps=2"}},
    {"warmup_learning_rate", {"--num_learning_rate_warmup_epochs=1"}},
    {"learning_rate_base_batch_size", {"--learning_rate_scaling=linear"}},
    {"num_learning_rate_cooldown_epochs", {"--learning_rate_schedule=cosine"}},
    {"polynomial_power", {"--learning_rate_schedule=polynomial"}},
    {"restart_period_factor", {"--learning_rate_schedule=cosine_restarts", "--num_epochs_per_decay=1"}},
    {"one_cycle_rise", {"--learning_rate_schedule=one_cycle"}},
    {"one_cycle_start_divisor", {"--learning_rate_schedule=one_cycle"}},
    {"one_cycle_end_divisor", {"--learning_rate_schedule=one_cycle"}},
    {"mixup_prob", {"--mixup_alpha=0.2"}},
    {"mixup_switch_prob", {"--mixup_alpha=0.2", "--cutmix_alpha=1"}},
    {"rand_augment_num_ops", {"--auto_augment=rand"}},
    {"rand_augment_magnitude", {"--auto_augment=rand"}},
    {"rand_augment_magnitude_std", {"--auto_augment=timm_rand"}},
    {"batch_norm_decay", {"--model=resnet20"}},
    {"recalibrate_batch_norm", {"--model=resnet20"}},
    {"record_cache_mib", {"--datasets_use_caching"}},
    {"agg_small_grads_max_group", {"--agg_small_grads_max_bytes=64"}},
    {"powersgd_rank", {"--gradient_compression=powersgd", "--variable_update=replicated", "--num_gpus=2"}},
    {"powersgd_start_iter", {"--gradient_compression=powersgd", "--variable_update=replicated", "--num_gpus=2"}},
    {"powersgd_min_compression_rate",
     {"--gradient_compression=powersgd", "--variable_update=replicated", "--num_gpus=2"}},
    {"topk_share", {"--gradient_compression=topk", "--variable_update=replicated", "--num_gpus=2"}},
    {"batch_size_memory_mib", {"--batch_size=auto"}},
    {"num_eval_batches", {"--eval_during_training_every_n_steps=1"}},
    {"num_eval_epochs", {"--eval_during_training_every_n_steps=1"}},
    {"stop_at_top_1_accuracy", {"--eval_during_training_every_n_steps=1"}},
    {"early_stop", {"--eval_during_training_every_n_steps=1"}},
    {"early_stop_min_delta", {"--eval_during_training_every_n_steps=1", "--early_stop=2"}},
    {"calibration_bins", {"--eval_during_training_every_n_steps=1"}},
    {"most_wrong", {"--eval_during_training_every_n_steps=1"}},
};

// Ends that belong to the range of the flag alone: with the data, the other flags or the machine of this test they are
// refused for another reason.
const std::set<std::string> kNeedMore = {
    "num_classes",                   // the data have 12
    "stochastic_depth",              // residual blocks
    "random_crop_attempts",          // images of any size
    "min_object_covered",            // the same
    "batch_size_memory_mib",         // more than a batch of one image takes
    "folds",                         // --fold, and data that are not divided yet
    "fold",                          // --folds, and the same
    "distill_weight",                // a teacher
    "resnet_base_lr",                // a ResNet for ImageNet, and no --init_learning_rate
    "rank_deadline",                 // several processes
    "rank_start_deadline",           // the same
    "loss_scale_lower_after",        // a GPU
    "loss_scale_most_skips",         // the same
    "fp16_inc_loss_scale_every_n",   // the same
    "trt_max_workspace_size_bytes",  // --trt_mode
    "calibration_batches",           // --trt_mode=INT8 and no training
};

// Whole numbers whose upper end is a count of things that are made or done: they are checked, and not run.
bool runs_at_upper_end(const core::FlagSpec& spec, double most) {
  return spec.kind == core::FlagKind::kReal ? most <= 1 : most <= 30;
}

class FlagRangeEnds : public ::testing::Test {
 protected:
  void SetUp() override { data::write_shapes({.train_count = 24, .validation_count = 12, .train_shards = 1}, data_); }

  CommandResult train(const core::FlagSpec& spec, double value) {
    Arguments arguments = {"train",
                           "--model=trivial",
                           "--data_name=shapes",
                           "--data_dir=" + data_,
                           "--device=cpu",
                           "--batch_size=2",
                           "--num_batches=2",
                           "--num_intra_threads=1",
                           "--init_learning_rate=0.01",
                           "--train_dir=" + run_};
    Arguments more;
    if (const auto found = kCompanions.find(spec.name); found != kCompanions.end()) more = found->second;
    const std::string number =
        spec.kind == core::FlagKind::kInteger ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
    more.push_back("--" + spec.name + "=" + number);
    return run_command(with_flags(arguments, more));
  }

  // An end that is refused is refused by name and leaves no trace; one that is not, is not.
  void expect_end(const core::FlagSpec& spec, double value, bool refused) {
    SCOPED_TRACE(fmt::format("--{}={}", spec.name, value));
    if (core::local_file_system().exists(run_)) core::local_file_system().remove_tree(run_);
    const CommandResult result = train(spec, value);
    EXPECT_EQ(result.err.find("internal"), std::string::npos) << result.err;
    if (result.code == kUsage) {
      EXPECT_FALSE(core::local_file_system().exists(run_)) << "refused behind the first file: " << result.err;
    }
    if (refused) {
      EXPECT_NE(result.err.find(spec.name), std::string::npos) << result.err;
      EXPECT_EQ(result.code, kUsage) << result.out;
    } else if (!kNeedMore.contains(spec.name)) {
      EXPECT_NE(result.code, kUsage) << result.err;
    }
  }

  const core::TempDir temp_;
  const std::string data_ = temp_.file("shapes"), run_ = temp_.file("run");
};

TEST_F(FlagRangeEnds, AreAcceptedOrRefusedBeforeAnythingIsWritten) {
  int ends = 0;
  for (const core::FlagSpec& spec : frontends::tf_cnn_flags(frontends::Dialect::kTrainyard).all()) {
    if (spec.disposition != core::Disposition::kImplemented) continue;
    if (spec.kind != core::FlagKind::kInteger && spec.kind != core::FlagKind::kReal) continue;
    const frontends::FlagRange range = frontends::flag_range(spec);
    if (range.least) {
      ++ends;
      expect_end(spec, *range.least, range.above_least);
    }
    if (range.most && (range.below_most || runs_at_upper_end(spec, *range.most))) {
      ++ends;
      expect_end(spec, *range.most, range.below_most);
    }
  }
  EXPECT_GT(ends, 80);
}

TEST_F(FlagRangeEnds, OfSmoothingAndAveragesAreSaidInTheHelp) {
  const std::string help = run_command({"help"}).out;
  EXPECT_NE(help.find("--label_smoothing=<float, at least 0, below 1>"), std::string::npos);
  EXPECT_NE(help.find("--ema_decay=<float, at least 0, below 1>"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::cli::flag_range_ends_test
