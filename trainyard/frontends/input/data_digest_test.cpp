#include "trainyard/frontends/input/data_digest.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::frontends::data_digest_test {
namespace {

using ::testing::HasSubstr, ::testing::MatchesRegex;

class DataDigest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    const std::string path = directory_.file(name);
    files_.make_directories(core::parent_path(path));
    files_.write_file_atomically(path, bytes);
  }
  std::string digest(const std::string& name) { return data_digest(files_, directory_.file(name)); }

  core::TempDir directory_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(DataDigest, IsOfNamesAndSizes) {
  for (const char* folder : {"one", "same", "longer", "renamed", "moved"}) {
    write(std::string(folder) + "/a", "1234");
    write(std::string(folder) + "/b/c", "12");
  }
  write("same/a", "abcd");
  write("longer/a", "12345");
  files_.remove_tree(directory_.file("renamed/b"));
  write("renamed/d/c", "12");
  files_.remove_tree(directory_.file("moved/b"));
  write("moved/c", "12");
  EXPECT_THAT(digest("one"), HasSubstr("2 files, 6 bytes, "));
  EXPECT_EQ(digest("same"), digest("one")) << "contents are not read";
  for (const char* other : {"longer", "renamed", "moved"}) EXPECT_NE(digest(other), digest("one")) << other;
}

// Nothing follows the hash where all files were counted.
TEST_F(DataDigest, SaysHowManyFilesAndBytesThereAre) {
  files_.make_directories(directory_.file("empty"));
  EXPECT_THAT(digest("empty"), MatchesRegex("0 files, 0 bytes, [0-9a-f]{16}"));
  write("one/a", "1234");
  write("one/b/c", "123");
  EXPECT_THAT(digest("one"), MatchesRegex("2 files, 7 bytes, [0-9a-f]{16}"));
}

TEST_F(DataDigest, OfNamedShardsTheFolderDoesNotCount) {
  for (const char* folder : {"one", "two"}) {
    write(std::string(folder) + "/train-0", "1234");
    write(std::string(folder) + "/train-1", "12");
    write(std::string(folder) + "/other", std::string("123") + folder);
  }
  EXPECT_THAT(digest("one/train-*"), HasSubstr("2 files, 6 bytes, "));
  EXPECT_EQ(digest("one/train-*"), digest("two/train-*"));
}

// One process reads such data; several must not refuse them.
TEST_F(DataDigest, LinksThatLeadBackAreIgnored) {
  for (const char* folder : {"one", "linked"}) write(std::string(folder) + "/cats/a", "1234");
  std::filesystem::create_directory_symlink("..", directory_.file("linked/cats/up"));
  std::filesystem::create_directory_symlink(".", directory_.file("linked/latest"));
  EXPECT_EQ(digest("linked"), digest("one"));
}

TEST_F(DataDigest, FoldersThatNestTooDeepAreRefused) {
  std::string folder = "one";
  for (int i = 0; i < 40; ++i) folder += "/a";
  write(folder + "/file", "1234");
  EXPECT_EQ(core::problem_of([&] { digest("one"); }), "folders of images nest too deep");
}

}  // namespace
}  // namespace trainyard::frontends::data_digest_test
