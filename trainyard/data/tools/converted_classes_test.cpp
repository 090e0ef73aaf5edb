// Names and folders of the classes of a converted data set.
#include "trainyard/data/tools/converted_classes.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"

namespace trainyard::data::converted_classes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ConvertedClasses, FoldersHaveDifferentNamesThatFileSystemsTake) {
  const std::string zero("a\0b", 3), long_name(241, 'x'), fits(240, 'y');
  const std::string cut = std::string(239, 'z') + "\u00E9";  // two bytes, of which one is beyond the longest name
  const ConvertedClasses classes({"and/or", "crane", ".hidden", "crane", "", zero, long_name, fits, cut}, 9);
  EXPECT_THAT(classes.folder_names(), ElementsAre("and_or", "crane 00001", "_hidden", "crane 00003", "00004", "a_b",
                                                  std::string(240, 'x'), fits, std::string(239, 'z')));
  EXPECT_THAT(classes.names(), IsEmpty()) << "one of them has none";
  EXPECT_THAT(classes.names_or_numbers(),
              ElementsAre("and/or", "crane", ".hidden", "crane", "00004", zero, long_name, fits, cut));
}

// A class's name is the list's; a label that the list lacks belongs to no class.
TEST(ConvertedClasses, OfAListAreAllOfTheList) {
  ConvertedClasses classes({"ant", "bee"}, 7);
  EXPECT_EQ(classes.add(1, "wasp", "record 3"), "bee");
  EXPECT_EQ(core::message_of([&] { classes.add(2, "wasp", "record 4"); }, core::ErrorCode::kCorruptData),
            "label has no name: record 4: expected one of 2 classes, got 2");
  EXPECT_THAT(classes.names(), ElementsAre("ant", "bee"));
  EXPECT_THAT(classes.folder_names(), ElementsAre("ant", "bee"));
  EXPECT_TRUE(classes.has(0)) << "without images, too";
}

TEST(ConvertedClasses, WithoutAListAreThoseOfTheSamples) {
  ConvertedClasses classes({}, 5), unlimited({}, 0), none({}, 5);
  for (ConvertedClasses* const each : {&classes, &unlimited}) {
    EXPECT_EQ(each->add(2, "bee", "record 1"), "bee");
    EXPECT_EQ(each->add(0, "ant", "record 2"), "ant");
    EXPECT_TRUE(each->has(2));
    EXPECT_FALSE(each->has(1));
    EXPECT_THAT(each->names(), IsEmpty());
  }
  // Labels with a gap are all that the data set may have, or all up to the largest.
  EXPECT_THAT(classes.folder_names(), ElementsAre("ant", "00001", "bee", "00003", "00004"));
  EXPECT_THAT(unlimited.folder_names(), ElementsAre("ant", "00001", "bee"));
  EXPECT_EQ(classes.add(1, "", "record 3"), "");
  EXPECT_THAT(classes.folder_names(), ElementsAre("ant", "00001", "bee")) << "without a gap";
  EXPECT_THAT(classes.names(), IsEmpty());
  EXPECT_EQ(classes.add(1, "asp", "record 4"), "asp");
  EXPECT_THAT(classes.names(), ElementsAre("ant", "asp", "bee"));
  EXPECT_THAT(none.folder_names(), IsEmpty());
}

TEST(ConvertedClasses, AllFoldersOfOneNameGetTheirNumbers) {
  const ConvertedClasses classes({"crane", "crane", "ant", "crane"}, 4);
  EXPECT_THAT(classes.folder_names(), ElementsAre("crane 00000", "crane 00001", "ant", "crane 00003"));
}

}  // namespace
}  // namespace trainyard::data::converted_classes_test
