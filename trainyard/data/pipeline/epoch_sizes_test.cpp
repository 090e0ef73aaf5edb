#include "trainyard/data/pipeline/epoch_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::data::epoch_sizes_test {
namespace {

TEST(EpochSizes, AreReadInTheirOrder) {
  EXPECT_EQ(parse_epoch_sizes(""), std::vector<EpochSize>());
  EXPECT_EQ(parse_epoch_sizes("0:128,20:160x192,35:224"),
            (std::vector<EpochSize>{{0, {128, 128}}, {20, {160, 192}}, {35, {224, 224}}}));
  EXPECT_EQ(parse_epoch_sizes("0:16384,2147483647:1x16384"),
            (std::vector<EpochSize>{{0, {16'384, 16'384}}, {2'147'483'647, {1, 16'384}}}));
  EXPECT_EQ(parse_epoch_sizes("0:1,1:16384x1"), (std::vector<EpochSize>{{0, {1, 1}}, {1, {16'384, 1}}}));
}

TEST(EpochSizes, RefuseOtherTexts) {
  for (const char* text : {"128",       "0:",    ":128",        "0:128,",       ",0:128",  "0:128,,3:4",
                           "0:128;3:4", "0:0",   "0:-3",        "0:12a",        "0:16385", "0:1x",
                           "0:1x2x3",   "1:128", "0:128,0:160", "0:8,5:9,4:10", "-1:5",    "99999999999999999999:5",
                           " 0:5",      "0:5 "}) {
    EXPECT_THAT(core::message_of([&] { parse_epoch_sizes(text); }), ::testing::HasSubstr("0:128,20:192,35:224"))
        << text;
  }
}

TEST(EpochSizes, MakeTransformsThatDifferInTheSizeAlone) {
  std::vector<TransformOptions> asked;
  const auto made = transforms_of({{0, {4, 5}}, {3, {6, 7}}}, {.height = 8, .width = 8, .resize_method = "area"},
                                  [&](const TransformOptions& options) -> std::shared_ptr<const Transform> {
                                    asked.push_back(options);
                                    return transforms().get("imagenet")(options);
                                  });
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1].resize_method, "area");
  EXPECT_EQ(made[0].from_epoch, 0);
  EXPECT_EQ(made[1].from_epoch, 3);
  EXPECT_EQ(made[0].transform->size(), (ImageSize{4, 5}));
  EXPECT_EQ(made[1].transform->size(), (ImageSize{6, 7}));
}

TEST(EpochSizes, SayWhatCannotBeRead) {
  const auto problem = [](const char* text) { return core::problem_of([&] { parse_epoch_sizes(text); }); };
  const std::string begin = "sizes by epoch cannot be read: ";
  EXPECT_EQ(problem("0:128,"), begin + "it ends with a comma");
  EXPECT_EQ(problem("0:128,64"), begin + "'64' does not begin with an epoch");
  EXPECT_EQ(problem("2147483648:64"), begin + "'2147483648:64' does not begin with an epoch");
  EXPECT_EQ(problem("0:12a"), begin + "'12a' is no size");
  EXPECT_EQ(problem("0:5x0"), begin + "'5x0' is no size");
  EXPECT_EQ(problem("0:5x16385"), begin + "'5x16385' is no size");
  EXPECT_EQ(problem("0:0x5"), begin + "'0x5' is no size");
  EXPECT_EQ(problem("1:128"), begin + "the first size is not that of epoch 0");
  EXPECT_EQ(problem("0:128,0:160"), begin + "epochs do not ascend");
  EXPECT_THAT(core::message_of([] { parse_epoch_sizes("1:128"); }),
              ::testing::HasSubstr("1 to 16384 pixels: 0:128,20:192,35:224, got 1:128"));
}

}  // namespace
}  // namespace trainyard::data::epoch_sizes_test
