#include "trainyard/core/base/pattern.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace trainyard::core::pattern_test {
namespace {

TEST(Pattern, AStarStandsForAnyCharacters) {
  const std::string name = "layer1.0.conv1.weight";
  for (const char* pattern : {"layer1.*", "*.weight", "layer*conv*weight", "*"}) {
    EXPECT_TRUE(matches_pattern(name, pattern)) << pattern;
  }
  for (const char* pattern : {"*", ""}) EXPECT_TRUE(matches_pattern("", pattern)) << pattern;
  EXPECT_TRUE(matches_pattern("ab", "**a**b**"));
  EXPECT_TRUE(matches_pattern("aab", "*ab")) << "the star gives back what it took";
  EXPECT_TRUE(matches_pattern("abcbc", "a*bc"));
}

TEST(Pattern, OtherCharactersStandForThemselvesOrForOneOfSome) {
  EXPECT_FALSE(matches_pattern("layer10.conv", "layer1.*")) << "a point is a point";
  using Pair = std::pair<const char*, const char*>;
  for (const auto& [name, pattern] :
       {Pair("fc.weight", "fc"), Pair("fc", "fc.weight"), Pair("fc", ""), Pair("", "a"), Pair("aab", "*ac")}) {
    EXPECT_FALSE(matches_pattern(name, pattern)) << name << " and " << pattern;
  }
  EXPECT_TRUE(matches_pattern("layer2.conv", "layer[12].*"));
  EXPECT_FALSE(matches_pattern("layer3.conv", "layer[12].*"));
}

TEST(NamesNearPattern, GuessesTheLayerOrTheParameterThatWasMeant) {
  const std::vector<std::string> names{
      "conv1.weight", "layer1.0.conv1.weight", "layer1.0.bn1.bias", "layer2.0.conv1.weight", "fc.weight", "fc.bias"};
  EXPECT_EQ(names_near_pattern("layer1", names),
            "did you mean 'layer1.*'? near are layer1.0.conv1.weight, layer1.0.bn1.bias");
  EXPECT_EQ(names_near_pattern("laier2.*", names), "did you mean 'layer2.*'? near are layer2.0.conv1.weight");
  EXPECT_EQ(names_near_pattern("fc.wieght", names), "did you mean 'fc.weight'? near are fc.weight");
  EXPECT_EQ(names_near_pattern("bn1*", names), "near are layer1.0.bn1.bias");
  EXPECT_EQ(names_near_pattern("*", {}), "there are none");
  EXPECT_EQ(names_near_pattern("transformer.*", names),
            "there are conv1.weight, layer1.0.conv1.weight, layer1.0.bn1.bias, layer2.0.conv1.weight, fc.weight, ...");
}

TEST(NamesNearPattern, ShowsFiveNamesAndLooksForTheFirstOfTheLongestParts) {
  EXPECT_EQ(names_near_pattern("transformer.*", {"a", "b", "c", "d", "e"}), "there are a, b, c, d, e");
  EXPECT_EQ(names_near_pattern("transformer.*", {"a", "b", "c", "d", "e", "f"}), "there are a, b, c, d, e, ...");
  EXPECT_EQ(names_near_pattern("fc*bn", {"fc", "bn"}), "did you mean 'fc'? near are fc");
  EXPECT_EQ(names_near_pattern("a?conv2.*", {"bn1", "conv2.bias"}), "did you mean 'conv2.*'? near are conv2.bias");
}

TEST(Pattern, ABackslashIsACharacter) {
  EXPECT_TRUE(matches_pattern("a\\b", "a\\b"));
  EXPECT_FALSE(matches_pattern("ab", "a\\b"));
  EXPECT_FALSE(matches_pattern("a*", "a\\*")) << "and does not take a star's meaning away";
}

TEST(NamesNearPattern, PointsAndSlashesAtTheEndsOfAPartDoNotCount) {
  const std::vector<std::string> names{"conv1.weight", "fc.weight"};
  for (const char* const pattern : {"conv1/*", "*/conv1.*", "*./conv1"}) {
    EXPECT_EQ(names_near_pattern(pattern, names), "did you mean 'conv1.*'? near are conv1.weight") << pattern;
  }
  EXPECT_EQ(names_near_pattern("./*", names), "there are conv1.weight, fc.weight") << "nothing is left of it";
}

}  // namespace
}  // namespace trainyard::core::pattern_test
