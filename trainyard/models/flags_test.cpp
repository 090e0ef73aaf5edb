#include "trainyard/models/flags.h"

#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::models::flags_test {
namespace {

TEST(ImageSizeFlag, IsOneNumberOrHeightByWidth) {
  EXPECT_EQ(parse_image_size("224"), nn::Size2d(224, 224));
  EXPECT_EQ(parse_image_size("160x192"), nn::Size2d(160, 192));
  EXPECT_EQ(parse_image_size("1x16384"), nn::Size2d(1, 16384));
}

TEST(ImageSizeFlag, OtherTextsAreRefused) {
  for (const char* text : {"", "x", "0", "-1", "224x", "x224", "160x192x3", "160 x 192", "16385", "224.0", "1e2",
                           "99999999999999999999", "0x10", "224px", "+5"}) {
    EXPECT_EQ(core::problem_of([&] { parse_image_size(text); }), "--image_size is no size of images") << text;
  }
  EXPECT_EQ(core::message_of([] { parse_image_size("big"); }),
            "--image_size is no size of images: expected N or HxW, as in 224 or 160x192, each 1 to 16384 pixels, got "
            "big");
}

TEST(ImageSizeFlag, IsNothingWhereItIsNotGiven) {
  core::FlagTable table;
  declare_image_size_flag(table, "Model", "the model's own");
  EXPECT_EQ(read_image_size(core::FlagValues(table)), nn::Size2d(0));
  EXPECT_EQ(read_image_size(core::parse_flags(table, {"--image_size=32x48"})), nn::Size2d(32, 48));
}

TEST(ModelFlags, AreUnsetWhereTheModelsOwnHold) {
  core::FlagTable table;
  declare_flags(table);
  const core::FlagValues values(table);
  EXPECT_EQ(values.text("model"), "trivial");
  EXPECT_FALSE(values.boolean("auxiliary_heads"));
  EXPECT_FALSE(values.optional_integer("num_classes"));
  for (const char* const name : {"stochastic_depth", "dropout", "batch_norm_decay", "resnet_base_lr"}) {
    EXPECT_FALSE(values.optional_real(name)) << name;
  }
  EXPECT_FALSE(values.optional_text("backbone_model_path"));
}

TEST(ModelFlags, EndWhereTheirMeaningEnds) {
  core::FlagTable table;
  declare_flags(table);
  const auto taken = [&](const std::string& flag) {
    return !core::error_of([&] { static_cast<void>(core::parse_flags(table, {flag})); });
  };
  for (const char* const flag :
       {"--num_classes=1", "--num_classes=16777216", "--stochastic_depth=0", "--stochastic_depth=0.999", "--dropout=0",
        "--dropout=0.999", "--batch_norm_decay=0", "--batch_norm_decay=1"}) {
    EXPECT_TRUE(taken(flag)) << flag;
  }
  for (const char* const flag :
       {"--num_classes=0", "--num_classes=16777217", "--stochastic_depth=-0.1", "--stochastic_depth=1",
        "--dropout=-0.1", "--dropout=1", "--batch_norm_decay=-0.1", "--batch_norm_decay=1.1"}) {
    EXPECT_FALSE(taken(flag)) << flag;
  }
}

}  // namespace
}  // namespace trainyard::models::flags_test
