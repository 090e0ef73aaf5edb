// The text of --describe_input: all that changes a training's images is in it.
#include "trainyard/frontends/tf_cnn/input_lines.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/frontends/tf_cnn/benchmark_cnn.h"
#include "trainyard/frontends/tf_cnn/options.h"

namespace trainyard::frontends::input_lines_test {
namespace {

TEST(InputLines, NameBatchesAndSizes) {
  InputSettings input{.dataset = "cifar10"};
  input.transform = {.height = 32, .width = 32};
  input.mix = {.mixup_alpha = 0.2, .cutmix_alpha = 1, .probability = 0.5, .cutmix_probability = 0.25};
  input.repeated_augmentation = 3;
  input.balanced_sampling = true;
  input.epoch_sizes = {{0, {24, 20}}, {5, {32, 32}}};
  const std::string normalize = "  normalize mean=127.5,127.5,127.5 std=127.5,127.5,127.5\n";
  EXPECT_EQ(input_lines(input),
            "Training images:\n  resize 32x32 where it differs\n  pad 4 zeros\n"
            "  random_crop 32x32\n  mirror p=0.5\n" +
                normalize +
                "Batches:\n  repeated_augmentation 3\n  mixup alpha=0.2\n  cutmix alpha=1\n"
                "  mixed by pairs p=0.5 switch_to_cutmix=0.25\n  balanced_sampling\n"
                "  size 24x20 from epoch 0\n  size 32x32 from epoch 5\n"
                "Validation images:\n  resize 32x32 where it differs\n" +
                normalize);
  input.mix = {.mixup_alpha = 0.2};
  EXPECT_THAT(input_lines(input), ::testing::HasSubstr("  mixup alpha=0.2\n  mixed by pairs p=1\n  balanced"));
}

TEST(InputLines, ArePrintedInThePlaceOfATraining) {
  std::ostringstream out;
  const RunStatistics statistics =
      BenchmarkCnn({{"model", "trivial"}, {"data_name", "cifar10"}, {"device", "cpu"}, {"describe_input", "true"}})
          .run(out);
  EXPECT_EQ(statistics.num_steps, 0);
  EXPECT_THAT(out.str(), ::testing::HasSubstr("Training images:\n  resize 32x32 where it differs\n  pad 4 zeros\n"));
  EXPECT_THAT(out.str(), ::testing::HasSubstr("Batches:\n  none\nValidation images:\n"));
  TfCnnOptions options;
  options.mode = RunMode::kForwardOnly;
  options.describe_input = true;
  EXPECT_THAT(core::message_of([&] { options.validate(); }), ::testing::HasSubstr("describe_input"));
}

}  // namespace
}  // namespace trainyard::frontends::input_lines_test
