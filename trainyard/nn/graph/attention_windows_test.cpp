#include "trainyard/nn/graph/attention_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::nn::attention_windows_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

// torchvision's relative_position_index of windows of 2x2 pixels.
TEST(AttentionWindows, RelativePositionsAreTorchvisions) {
  EXPECT_THAT(relative_positions(2), ElementsAre(4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4));
  EXPECT_THAT(relative_positions(1), ElementsAre(0));
  EXPECT_EQ(relative_positions(7).size(), 7U * 7 * 7 * 7);
}

TEST(AttentionWindows, WithoutWindowsThereIsOneOfAllPixels) {
  const AttentionWindows all = attention_windows({}, 2, 3);
  EXPECT_EQ(all.count, 1);
  EXPECT_EQ(all.tokens, 6);
  EXPECT_THAT(all.pixels, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(all.regions, IsEmpty());
}

TEST(AttentionWindows, AreThoseOfAnImageRowByRow) {
  const AttentionWindows four = attention_windows({.window = 2}, 4, 6);
  EXPECT_EQ(four.count, 6);
  EXPECT_EQ(four.tokens, 4);
  EXPECT_THAT(four.pixels,
              ElementsAreArray({0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, 12, 13, 18, 19, 14, 15, 20, 21, 16, 17, 22, 23}));
  EXPECT_THAT(four.regions, IsEmpty());
}

// torch.roll by minus the shift: what comes around an edge does not attend to what was there.
TEST(AttentionWindows, ShiftedOnesComeAroundTheEdges) {
  const AttentionWindows shifted = attention_windows({.window = 2, .shift = 1}, 4, 4);
  EXPECT_THAT(shifted.pixels, ElementsAre(5, 6, 9, 10, 7, 4, 11, 8, 13, 14, 1, 2, 15, 12, 3, 0));
  EXPECT_THAT(shifted.regions, ElementsAre(0, 0, 0, 0, 1, 2, 1, 2, 3, 3, 6, 6, 4, 5, 7, 8));
  // Of a single row of windows only the columns are shifted.
  const AttentionWindows row = attention_windows({.window = 2, .shift = 1}, 2, 4);
  EXPECT_THAT(row.pixels, ElementsAre(1, 2, 5, 6, 3, 0, 7, 4));
  EXPECT_THAT(row.regions, ElementsAre(0, 0, 0, 0, 1, 2, 1, 2));
}

}  // namespace
}  // namespace trainyard::nn::attention_windows_test
