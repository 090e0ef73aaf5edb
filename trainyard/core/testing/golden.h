// Golden files of tests: the text that a program prints, stored next to the test and compared byte for byte.
//
//   EXPECT_TRUE(core::matches_golden(help_markdown(table), "docs/flags.md"));
//
// With UPDATE_GOLDEN=1 in the environment the files are written instead; look at the difference before you commit it.
// For tests only (needs TRAINYARD_SOURCE_DIR, which every test program has).
#pragma once

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"

namespace trainyard::core {

// `path` is relative to the root of the source tree.
inline ::testing::AssertionResult matches_golden(const std::string& text, const std::string& path) {
  const std::string full_path = join_path(TRAINYARD_SOURCE_DIR, path);
  FileSystem& files = local_file_system();
  if (const char* update = std::getenv("UPDATE_GOLDEN"); update != nullptr && std::string(update) == "1") {
    files.make_directories(parent_path(full_path));
    files.write_file_atomically(full_path, text);
    return ::testing::AssertionSuccess();
  }
  if (!files.exists(full_path)) {
    return ::testing::AssertionFailure() << path << " is missing; make it with UPDATE_GOLDEN=1";
  }
  const std::string expected = files.read_file(full_path);
  if (text == expected) return ::testing::AssertionSuccess();
  std::istringstream expected_lines(expected), actual_lines(text);
  std::string expected_line, actual_line;
  for (int line = 1;; ++line) {
    const bool more_expected = static_cast<bool>(std::getline(expected_lines, expected_line));
    const bool more_actual = static_cast<bool>(std::getline(actual_lines, actual_line));
    if (!more_expected) expected_line = "(end)";
    if (!more_actual) actual_line = "(end)";
    if (expected_line == actual_line && more_expected) continue;
    return ::testing::AssertionFailure() << path << ":" << line << " says\n  " << expected_line << "\nand now it is\n  "
                                         << actual_line << "\nIf that is meant: UPDATE_GOLDEN=1";
  }
}

}  // namespace trainyard::core
