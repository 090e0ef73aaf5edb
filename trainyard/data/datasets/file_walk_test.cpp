#include "trainyard/data/datasets/file_walk.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/data/testing/dataset_folder.h"

namespace trainyard::data::file_walk_test {
namespace {

using ::testing::ElementsAre;

class Told : public FileVisitor {
 public:
  void visit(const std::string& name, const core::FileInfo& /*info*/) override { names.push_back(name); }
  void open_folder(const std::string& path, int depth) override {
    folders.push_back(fmt::format("{} {}", core::base_name(path), depth));
  }

  std::vector<std::string> names{}, folders{};
};

class WalkFiles : public DatasetFolderTest {};

TEST_F(WalkFiles, FoldersAreOpenedWithTheirDepth) {
  for (const char* file : {"top/a/b/1.jpg", "top/c/2.jpg", "top/3.jpg"}) write(file);
  Told told;
  walk_files(files_, temp_.file("top"), told);
  EXPECT_THAT(told.names, ElementsAre("3.jpg", "a", "a/b", "a/b/1.jpg", "c", "c/2.jpg"));
  EXPECT_THAT(told.folders, ElementsAre("top 0", "a 1", "b 2", "c 1"));
}

}  // namespace
}  // namespace trainyard::data::file_walk_test
