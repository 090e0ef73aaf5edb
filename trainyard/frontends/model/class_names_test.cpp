#include "trainyard/frontends/model/class_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/train/checkpoint/checkpoint_facts.h"

namespace trainyard::frontends::class_names_test {
namespace {

using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr;

TEST(ClassNames, ThoseOfACheckpointAreByOutput) {
  const train::CheckpointFacts facts{.classes = {"10", "2", "a\nb"}, .first_output = 1};
  const SavedClasses saved = saved_classes(facts, {.path = "run/model.ckpt-5", .global_step = 5});
  EXPECT_EQ(saved.checkpoint.global_step, 5);
  EXPECT_EQ(saved.classes, (ClassNames{.names = {"10", "2", "a\nb"}, .first_output = 1}));
  EXPECT_THAT(saved.classes.by_output(), ElementsAre("", "10", "2", "a\nb"));
  const ClassNames none{.names = {}, .first_output = 2};
  EXPECT_TRUE(none.by_output().empty()) << "no names, also where the first outputs are of no class";
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

TEST(ClassNames, ARefusalSaysWhatBothSidesHave) {
  const ClassNames before{.names = {"bird", "cat"}};
  const auto detail = [&](const ClassNames& now, int64_t count) {
    return core::thrown_by([&] {
             check_same_classes({before, "model.ckpt-5", 2}, {now, "data/train", count}, "begin another run");
           })
        .detail();
  };
  const core::ErrorDetail numbers = detail({}, 1000);
  EXPECT_EQ(numbers.problem, "other classes than those of model.ckpt-5 (one has names, the other numbers)");
  EXPECT_EQ(numbers.where, "data/train");
  EXPECT_THAT(numbers.expected, ::testing::StartsWith("2 from output 0 on: 'bird'"));
  EXPECT_EQ(numbers.actual, "1000 without names");
  EXPECT_EQ(numbers.remedy, "begin another run");
  EXPECT_EQ(detail({}, 0).actual, "no names");
  EXPECT_THAT(detail({.names = before.names, .first_output = 1}, 2).actual,
              ::testing::StartsWith("2 from output 1 on: 'bird'"));
}

TEST(ClassNames, TheSideWithNamesIsSaidFirst) {
  const ClassNames named{.names = {"bird", "cat", "dog"}}, numbers;
  const auto said = [](const ClassNames& before, const ClassNames& now) {
    ::testing::internal::CaptureStderr();
    check_same_classes({before, "model.ckpt-5", 3}, {now, "data/train", 3}, "begin another run");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(numbers, named), HasSubstr("data/train has names of its 3 classes, model.ckpt-5 has none"));
  EXPECT_THAT(said(named, numbers), HasSubstr("model.ckpt-5 has names of its 3 classes, data/train has none"));
  EXPECT_EQ(said(numbers, numbers), "");
}

TEST(ClassNames, TextsOfRecordsAreNamesByOutput) {
  EXPECT_THAT(names_of_texts("partial\n1 tench\n3 shark\n"), ElementsAre("", "tench", "", "shark"));
  EXPECT_TRUE(names_of_texts("").empty());
  EXPECT_EQ(texts_of_names({"", "tench", "", "a\nb"}), "partial\n1 tench\n3 a\\nb\n");
  EXPECT_EQ(texts_of_names({"caf\xef\xbf\xbd", "tench"}), "partial\n1 tench\n") << "a name that was not UTF-8";
  EXPECT_THAT(names_of_texts(texts_of_names({"tench", "a\nb"}, 1)), ElementsAre("", "tench", "a\nb"));
}

}  // namespace
}  // namespace trainyard::frontends::class_names_test
