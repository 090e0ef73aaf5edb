// A folder in which a test writes the files of a data set.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/formats/containers/tar.h"

namespace trainyard::data {

class DatasetFolderTest : public ::testing::Test {
 protected:
  // Writes a file of the folder, and makes the folders above it.
  void write(const std::string& name, const std::string& content = "x") {
    files_.make_directories(core::parent_path(temp_.file(name)));
    files_.write_file_atomically(temp_.file(name), content);
  }
  // Writes an archive of files, each with its name and content.
  void write_tar(const std::string& name, const std::vector<std::pair<std::string, std::string>>& members) {
    files_.make_directories(core::parent_path(temp_.file(name)));
    formats::TarWriter writer(files_.open_write(temp_.file(name)));
    for (const auto& [member, content] : members) writer.write(member, content);
    writer.close();
  }
  // Returns the labels of all samples.
  static std::vector<int64_t> labels(const Dataset& dataset) {
    std::vector<int64_t> result;
    for (int64_t i = 0; i < dataset.size(); ++i) result.push_back(dataset.read(i).value().label);
    return result;
  }

  core::TempDir temp_;
  core::FileSystem& files_ = core::local_file_system();
};

}  // namespace trainyard::data
