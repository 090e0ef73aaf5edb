#include "trainyard/data/datasets/image_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/core/testing/temp_dir.h"

namespace trainyard::data::image_files_test {
namespace {

using ::testing::ElementsAre, ::testing::IsEmpty;

class ImagesBelow : public ::testing::Test {
 protected:
  void add(const std::string& name) {
    files_.make_directories(core::parent_path(temp_.file(name)));
    files_.write_file_atomically(temp_.file(name), "nobody looks into it");
  }
  // As paths below the folder.
  std::vector<std::string> found() {
    std::vector<std::string> names;
    for (const std::string& path : images_below(files_, temp_.path())) {
      EXPECT_TRUE(path.starts_with(temp_.path() + "/")) << path;
      names.push_back(path.substr(temp_.path().size() + 1));
    }
    return names;
  }

  const core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
};

TEST_F(ImagesBelow, AreInOrderOfNamesThoseOfAFolderBeforeThoseOfItsFolders) {
  for (const char* name : {"b.png", "a/z.JPG", "a/below/c.gif", "c.jpeg", "B.webp"}) add(name);
  EXPECT_THAT(found(), ElementsAre("B.webp", "b.png", "c.jpeg", "a/z.JPG", "a/below/c.gif"));
}

TEST_F(ImagesBelow, AreNoOtherAndNoHiddenFiles) {
  for (const char* name : {"notes.txt", "png", "a.png.txt", ".hidden.png", ".cache/a.png", "a/.b.jpg"}) add(name);
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(ImagesBelow, AreRefusedWhereFoldersNestTooDeep) {
  std::string folder = "32";
  for (int level = 31; level > 0; --level) folder = std::to_string(level) + "/" + folder;
  add(folder + "/a.png");
  EXPECT_EQ(found().size(), 1U);
  add(folder + "/33/a.png");
  EXPECT_EQ(core::problem_of([&] { found(); }), "folders of images nest too deep");
}

}  // namespace
}  // namespace trainyard::data::image_files_test
