#include "trainyard/recipes/shared/class_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/memory_state.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::recipes {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const train::CheckpointIdentity kFive{.model = "m", .dataset = "imagenet", .num_classes = 5};

TEST(ClassNames, SavedOnesComeBack) {
  const ClassNames classes{.names = {"10", "2", "a\nb"}, .first_output = 1};
  core::MemoryState state;
  save_class_names(classes, state);
  EXPECT_EQ(load_class_names(state, kFive), classes);
  EXPECT_THAT(classes.by_output(), ElementsAre("", "10", "2", "a\nb"));
  core::MemoryState nothing;
  save_class_names({}, nothing);
  EXPECT_TRUE(nothing.names().empty());
  EXPECT_EQ(load_class_names(nothing, kFive), ClassNames());
}

// Checkpoints of earlier releases: names alone, behind the background where the model had 1001 outputs.
TEST(ClassNames, OldCheckpointsAreRead) {
  core::MemoryState old;
  old.text("data/label_names", "cat\ndog\n");
  EXPECT_EQ(load_class_names(old, kFive), (ClassNames{{"cat", "dog"}, 0}));
  EXPECT_EQ(load_class_names(old, {.model = "m", .dataset = "imagenet", .num_classes = 1001}),
            (ClassNames{{"cat", "dog"}, 1}));
  EXPECT_EQ(load_class_names(old, {.model = "m", .dataset = "cifar10", .num_classes = 11}).first_output, 0);
}

TEST(ClassNames, OtherClassesAreRefusedWithTheDifference) {
  const ClassNames before{.names = {"bird", "cat", "dog"}}, renamed{.names = {"bird", "cats", "dog"}},
      more{.names = {"ant", "bird", "cat", "dog"}}, numbers;
  const auto error = [&](const ClassNames& now, int64_t count) {
    return core::message_of([&] {
      check_same_classes({before, "model.ckpt-5", 3}, {now, "data/train", count}, "begin another run");
    });
  };
  EXPECT_EQ(error(before, 3), "no error");
  EXPECT_THAT(error(renamed, 3), AllOf(HasSubstr("model.ckpt-5"), HasSubstr("data/train"),
                                       HasSubstr("renamed: 'cat' is now 'cats'"), HasSubstr("begin another run")));
  EXPECT_THAT(error(more, 4), HasSubstr("added: 'ant'"));
  EXPECT_THAT(error(numbers, 1000), HasSubstr("one has names, the other numbers"));
  EXPECT_THAT(error({.names = before.names, .first_output = 1}, 3), HasSubstr("their outputs begin elsewhere"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error(numbers, 3), "no error");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("model.ckpt-5 has names of its 3 classes, data/train has none"));
  EXPECT_THAT(error({.names = {}, .first_output = 1}, 3), HasSubstr("their outputs begin elsewhere"));
}

TEST(ClassNames, TextsOfRecordsAreNamesByOutput) {
  EXPECT_THAT(names_of_texts("partial\n1 tench\n3 shark\n"), ElementsAre("", "tench", "", "shark"));
  EXPECT_TRUE(names_of_texts("").empty());
}

}  // namespace
}  // namespace trainyard::recipes
