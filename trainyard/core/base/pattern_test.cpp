#include "trainyard/core/base/pattern.h"

#include <gtest/gtest.h>

namespace trainyard::core {
namespace {

TEST(Pattern, AStarStandsForAnyCharacters) {
  EXPECT_TRUE(matches_pattern("layer1.0.conv1.weight", "layer1.*"));
  EXPECT_TRUE(matches_pattern("layer1.0.conv1.weight", "*.weight"));
  EXPECT_TRUE(matches_pattern("layer1.0.conv1.weight", "layer*conv*weight"));
  EXPECT_TRUE(matches_pattern("layer1.0.conv1.weight", "*"));
  EXPECT_TRUE(matches_pattern("", "*"));
  EXPECT_TRUE(matches_pattern("", ""));
  EXPECT_TRUE(matches_pattern("ab", "**a**b**"));
  EXPECT_TRUE(matches_pattern("aab", "*ab")) << "the star gives back what it took";
  EXPECT_TRUE(matches_pattern("abcbc", "a*bc"));
}

TEST(Pattern, OtherCharactersStandForThemselvesOrForOneOfSome) {
  EXPECT_FALSE(matches_pattern("layer10.conv", "layer1.*")) << "a point is a point";
  EXPECT_FALSE(matches_pattern("fc.weight", "fc"));
  EXPECT_FALSE(matches_pattern("fc", "fc.weight"));
  EXPECT_FALSE(matches_pattern("fc", ""));
  EXPECT_FALSE(matches_pattern("", "a"));
  EXPECT_FALSE(matches_pattern("aab", "*ac"));
  EXPECT_TRUE(matches_pattern("layer2.conv", "layer[12].*"));
  EXPECT_FALSE(matches_pattern("layer3.conv", "layer[12].*"));
}

}  // namespace
}  // namespace trainyard::core
