#include "trainyard/data/datasets/left_out_files.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/data/codecs/image_formats.h"

namespace trainyard::data::left_out_files_test {
namespace {

LeftOutFiles counted(const std::vector<std::pair<std::string, int>>& names) {
  LeftOutFiles files;
  for (const auto& [name, times] : names) {
    for (int i = 0; i < times; ++i) files.add(name);
  }
  return files;
}

TEST(LeftOutFiles, TheFiveMostFrequentKindsAreNamed) {
  const LeftOutFiles files =
      counted({{"a.pdf", 2}, {"a.csv", 4}, {"a.tar.gz", 1}, {"README", 5}, {"a.md", 3}, {"a.TXT", 6}, {"a.heic", 7}});
  EXPECT_EQ(files.text(), "7 .heic, 6 .txt, 5 without an extension, 4 .csv, 3 .md and 3 others");
  EXPECT_EQ(counted({{"a.txt", 1}, {"b.txt", 2}}).text(), "3 .txt");
}

TEST(LeftOutFiles, ThoseOfFoldersAreAddedUp) {
  LeftOutFiles all = counted({{"a.txt", 2}, {"b.csv", 1}});
  all.add(counted({{"c.txt", 3}, {"d.md", 4}}));
  EXPECT_EQ(all.text(), "5 .txt, 4 .md, 1 .csv");
}

TEST(LeftOutFiles, HiddenFilesAndThoseOfFileManagersAreNone) {
  EXPECT_TRUE(counted({{".DS_Store", 1}, {"Thumbs.db", 1}, {"desktop.ini", 1}}).empty());
  EXPECT_FALSE(counted({{"other.db", 1}}).empty());
}

TEST(LeftOutFiles, PicturesOfOtherFormatsHaveARemedy) {
  EXPECT_EQ(counted({{"a.txt", 3}}).remedy(), "");
  for (const char* name : {"a.HEIC", "a.svg"}) {
    EXPECT_EQ(counted({{"a.txt", 3}, {name, 1}}).remedy(), "convert pictures to one of " + image_format_names());
  }
}

}  // namespace
}  // namespace trainyard::data::left_out_files_test
