#include "trainyard/data/datasets/class_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::data::class_list_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

const KnownClasses kKnown{.names = {"bird", "cat", "dog"}, .origin = "the training images"};

TEST(ClassList, KnownNamesNumberTheLabels) {
  EXPECT_THAT(labels_of_classes(Names{"cat", "dog"}, kKnown, "val"), ElementsAre(1, 2));
  EXPECT_THAT(labels_of_classes(Names{"dog", "bird"}, kKnown, "val"), ElementsAre(2, 0));
  EXPECT_TRUE(labels_of_classes({}, kKnown, "val").empty());
}

// Lists of ImageNet's classes have two of one name. The labels of all behind them are still those of their lines.
TEST(ClassList, ANameThatIsKnownTwiceShiftsNoOther) {
  const KnownClasses known{.names = {"bird", "crane", "crane", "dog", "eel"}, .origin = "classnames.txt"};
  EXPECT_THAT(labels_of_classes(Names{"bird", "crane", "dog", "eel"}, known, "val"), ElementsAre(0, 1, 3, 4));
}

TEST(ClassList, KnownNamesThatAreAbsentAreSaid) {
  ::testing::internal::CaptureStderr();
  labels_of_classes(Names{"cat"}, kKnown, "val");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("val: 2 of the 3 classes of the training images are not there: 'bird', 'dog'"));
}

TEST(ClassList, UnknownNamesAreAnErrorWithBothSides) {
  const std::string error = core::message_of(
      [] {
        labels_of_classes(Names{"Cat", "dog", "eel\n"}, kKnown, "DIR/val");
      },
      core::ErrorCode::kInvalidArgument);
  EXPECT_THAT(error, HasSubstr("DIR/val"));
  EXPECT_THAT(error, HasSubstr("the training images: 'bird', 'cat', 'dog'"));
  EXPECT_THAT(error, HasSubstr("2 unknown: 'Cat', 'eel"));
  EXPECT_THAT(error, HasSubstr("'Cat' may be 'cat'"));
  EXPECT_THAT(error, HasSubstr("--on_unknown_class=skip"));
  Names many;
  for (int i = 0; i < 8; ++i) many.push_back("unknown " + std::to_string(i));
  EXPECT_THAT(core::message_of([&] { labels_of_classes(many, kKnown, ""); }, core::ErrorCode::kInvalidArgument),
              HasSubstr("8 unknown: 'unknown 0', 'unknown 1', 'unknown 2', 'unknown 3', 'unknown 4', ... (8 in all)"));
}

TEST(ClassList, UnknownNamesCanBeSkipped) {
  KnownClasses skipping = kKnown;
  skipping.on_unknown = on_unknown_class("skip");
  EXPECT_THAT(labels_of_classes(Names{"ant", "dog"}, skipping, "val"), ElementsAre(-1, 2));
  EXPECT_EQ(core::code_of([] { on_unknown_class("guess"); }), core::ErrorCode::kNotFound);
}

// Names are bytes: nothing is trimmed, folded or sorted as numbers.
TEST(ClassList, NamesAreComparedByteByByte) {
  const KnownClasses known{.names = {" cat", "10", "2", "caf\xc3\xa9", "cat"}, .origin = "training"};
  EXPECT_THAT(labels_of_classes(Names{"2", "10", "caf\xc3\xa9", "cat", " cat"}, known, ""), ElementsAre(2, 1, 3, 4, 0));
  // The same letters as two code points, as macOS writes them.
  EXPECT_THAT(
      core::message_of([&] { labels_of_classes(Names{"cafe\xcc\x81"}, known, ""); }, core::ErrorCode::kInvalidArgument),
      HasSubstr("1 unknown"));
}

TEST(ClassList, QuotedNamesFitIntoALine) {
  EXPECT_EQ(quoted_class("a\nb\x1b"), R"('a\nb\x1b')");
  EXPECT_EQ(quoted_class(" a "), "' a '");
  EXPECT_EQ(quoted_class(std::string(200, 'x')).size(), 85u);
}

TEST(ClassList, DifferencesAreNamed) {
  const Names before{"bird", "cat", "dog"};
  EXPECT_EQ(class_difference(before, before), "");
  EXPECT_EQ(class_difference(before, Names{"bird", "dog", "felis"}), "renamed: 'cat' is now 'felis'");
  EXPECT_EQ(class_difference(before, Names{"bird", "cat"}), "removed: 'dog'");
  EXPECT_EQ(class_difference(before, Names{"ant", "bird", "cat", "dog"}), "added: 'ant'");
  EXPECT_EQ(class_difference(before, Names{"ant", "bee", "cat", "dog"}), "added: 'ant', 'bee'; removed: 'bird'");
  EXPECT_EQ(class_difference(before, Names{"dog", "cat", "bird"}), "the same names in another order");
}

TEST(ClassList, ListsAndLongNamesAreCut) {
  EXPECT_EQ(quoted_classes(Names{"a", "b", "c", "d", "e"}), "'a', 'b', 'c', 'd', 'e'");
  EXPECT_EQ(quoted_classes(Names{"a", "b", "c", "d", "e", "f"}), "'a', 'b', 'c', 'd', 'e', ... (6 in all)");
  EXPECT_EQ(quoted_class(std::string(80, 'x')), "'" + std::string(80, 'x') + "'");
  EXPECT_EQ(quoted_class(std::string(81, 'x')), "'" + std::string(80, 'x') + "...'");
  EXPECT_EQ(class_difference(Names{"a", "b", "c", "d", "e", "f"}, Names{"u", "v", "w", "x", "y", "z"}),
            "renamed: 'a' is now 'u', 'b' is now 'v', 'c' is now 'w', 'd' is now 'x', 'e' is now 'y', ... (6 in all)");
  EXPECT_EQ(class_difference(Names{"a", "b", "b"}, Names{"a", "b"}), "some names come twice");
}

TEST(ClassList, EncodedNamesComeBack) {
  const Names names{"cat", "a\nb", "a\\nb", "", " ", "\\", "\xff\xfe"};
  EXPECT_EQ(decode_class_names(encode_class_names(names)), names);
  EXPECT_EQ(encode_class_names(Names{"a", "b\n"}), "a\nb\\n\n");
  EXPECT_TRUE(decode_class_names("").empty());
}

TEST(ClassList, OneClassIsSpokenOfAsOne) {
  const KnownClasses one{.names = {"cat"}, .origin = "the training images"};
  EXPECT_THAT(core::message_of([&] { labels_of_classes(Names{"dog"}, one, "val"); }),
              HasSubstr("expected the class of the training images: 'cat', got 1 unknown: 'dog'"));
  EXPECT_THAT(core::message_of([] { labels_of_classes(Names{"ant"}, kKnown, "val"); }),
              HasSubstr("expected some of the classes of the training images: 'bird', 'cat', 'dog'"));
  ::testing::internal::CaptureStderr();
  labels_of_classes(Names{"cat", "bird"}, kKnown, "val");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("val: 1 of the 3 classes of the training images is not there: 'dog'"));
}

}  // namespace
}  // namespace trainyard::data::class_list_test
