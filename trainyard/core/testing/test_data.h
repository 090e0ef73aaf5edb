// Finds the real data that tests use, outside of the tree. For tests only.
//
//   TEST(TfRecord, ReadsImageNetSample) {
//     const auto path = core::shared_data("imagenet_sample/validation-00000-of-00001");
//     if (!path) GTEST_SKIP() << core::missing_shared_data("imagenet_sample");
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "trainyard/core/files/file_system.h"

namespace trainyard::core {

// The folder that holds the data: $TRAINYARD_SHARED_DATA, else ../shared/data seen from the root of the source tree,
// where CTest runs the tests.
inline std::string shared_data_directory() {
  const char* directory = std::getenv("TRAINYARD_SHARED_DATA");
  return directory ? directory : "../shared/data";
}

// The path of a file or folder of the shared data, nothing when it is not there.
inline std::optional<std::string> shared_data(std::string_view relative) {
  std::string path = join_path(shared_data_directory(), relative);
  if (!local_file_system().exists(path)) return std::nullopt;
  return path;
}

// What a skipped test says.
inline std::string missing_shared_data(std::string_view relative) {
  return "needs the shared data " + join_path(shared_data_directory(), relative) + " (set TRAINYARD_SHARED_DATA)";
}

}  // namespace trainyard::core
