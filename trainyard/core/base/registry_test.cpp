#include "trainyard/core/base/registry.h"

#include <functional>

#include <gtest/gtest.h>

namespace trainyard::core::registry_test {
namespace {

const std::vector<std::string> kModels = {"lenet", "resnet20", "resnet50", "resnet50_v1.5", "trivial", "vgg16"};

TEST(NearestName, FindsSlips) {
  EXPECT_EQ(nearest_name("resnet5", kModels), "resnet50");    // a letter missing
  EXPECT_EQ(nearest_name("resnet200", kModels), "resnet20");  // one too many
  EXPECT_EQ(nearest_name("lanet", kModels), "lenet");         // a wrong one
  EXPECT_EQ(nearest_name("rsenet50", kModels), "resnet50");   // swapped neighbours
  EXPECT_EQ(nearest_name("ResNet50-v1.5", kModels), "resnet50_v1.5");
  EXPECT_EQ(nearest_name("a-b-c", {"a_b_c"}), "a_b_c");  // no edits
  EXPECT_EQ(nearest_name("vgg16", kModels), "vgg16");
}

TEST(NearestName, SwapIsOneEdit) {
  // By plain Levenshtein "ab" and "ba" are two edits apart, too far for two letters.
  EXPECT_EQ(nearest_name("ba", {"ab"}), "ab");
  EXPECT_EQ(nearest_name("badce", {"abcde"}), "") << "two edits are too many for five letters";
}

TEST(NearestName, KeepsQuietWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("inception", kModels), "");
  EXPECT_EQ(nearest_name("", kModels), "");
  EXPECT_EQ(nearest_name("b", {"a"}), "");
  EXPECT_EQ(nearest_name("lenet", {}), "");
}

TEST(UnknownName, MessageListsKnownNames) {
  const Error error = unknown_name("model", "resnet5", {"lenet", "resnet50"});
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_STREQ(error.what(), "unknown model 'resnet5'; did you mean 'resnet50'? known: lenet, resnet50");
  EXPECT_STREQ(unknown_name("model", "x", {}).what(), "unknown model 'x'; known: none");
}

TEST(Registry, GetsWhatWasAdded) {
  Registry<std::function<int(int)>> registry("doubler");
  const Registration twice(registry, "twice", [](int x) { return 2 * x; });
  registry.add("fourfold", [](int x) { return 4 * x; });
  EXPECT_EQ(registry.get("twice")(21), 42);
  EXPECT_TRUE(registry.has("fourfold"));
  EXPECT_FALSE(registry.has("thrice"));
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"fourfold", "twice"}));
}

TEST(Registry, AFormerNameIsTakenAndNotedOnce) {
  static int runs = 0;  // a process notes a name once
  const std::string former = "former" + std::to_string(runs++);
  Registry<int> registry("number", {{former, "one"}});
  registry.add("one", 1);
  EXPECT_TRUE(registry.has(former));
  const auto noted = [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(registry.get(former), 1);
    return testing::internal::GetCapturedStderr();
  };
  const std::string first = noted();
  EXPECT_NE(first.find(" info number '" + former + "' is now called 'one'\n"), std::string::npos) << first;
  EXPECT_EQ(noted(), "");
}

TEST(Registry, UnknownAndTakenNamesAreErrors) {
  Registry<int> registry("number");
  registry.add("one", 1);
  const int& one = registry.get("one");
  for (int i = 0; i < 1000; ++i) registry.add("n" + std::to_string(i), i);
  EXPECT_EQ(&one, &registry.get("one"));
  try {
    registry.get("noe");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_NE(std::string(error.what()).find("did you mean 'one'?"), std::string::npos) << error.what();
  }
  try {
    registry.add("one", 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "number 'one' is already registered");
  }
  EXPECT_EQ(registry.get("one"), 1);
}

TEST(NearestName, AThirdOfTheLettersMayBeWrong) {
  EXPECT_EQ(nearest_name("abcxef", {"abcdef"}), "abcdef");
  EXPECT_EQ(nearest_name("abxyef", {"abcdef"}), "abcdef");
  EXPECT_EQ(nearest_name("axyzef", {"abcdef"}), "");
  EXPECT_EQ(nearest_name("axcde", {"abcde"}), "abcde");
  EXPECT_EQ(nearest_name("axyde", {"abcde"}), "");
  EXPECT_EQ(nearest_name("resnet30", {"resnet20", "resnet50"}), "resnet20") << "the first of those that are as near";
  EXPECT_EQ(nearest_name("xabcdef", {"abcdef"}), "abcdef");
  EXPECT_EQ(nearest_name("bcdef", {"abcdef"}), "abcdef");
}

TEST(Registry, AFormerNameOfAnotherKindIsNotedToo) {
  static int runs = 0;  // a process notes a name once
  const std::string former = "shared" + std::to_string(runs++);
  testing::internal::CaptureStderr();
  for (const char* const kind : {"number", "letter", "number"}) note_former_name(kind, former, "one");
  const std::string noted = testing::internal::GetCapturedStderr();
  size_t lines = 0;
  for (const char c : noted) lines += c == '\n' ? 1 : 0;
  EXPECT_EQ(lines, 2U) << noted;
  EXPECT_NE(noted.find("info number '" + former + "' is now called 'one'\n"), std::string::npos) << noted;
  EXPECT_NE(noted.find("info letter '" + former + "' is now called 'one'\n"), std::string::npos) << noted;
}

}  // namespace
}  // namespace trainyard::core::registry_test
