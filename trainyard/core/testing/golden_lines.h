// Lines of a file of golden values.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::core {

// Returns the lines of a file of the source tree, without comments, which begin with #.
inline std::vector<std::string> golden_lines(const std::string& path) {
  std::istringstream text(local_file_system().read_file(join_path(TRAINYARD_SOURCE_DIR, path)));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("#")) lines.push_back(line);
  }
  return lines;
}

// Returns the lines of a table of the source tree, all but the first one, which names its columns.
inline std::vector<std::string> table_rows(const std::string& path) {
  std::istringstream text(local_file_system().read_file(join_path(TRAINYARD_SOURCE_DIR, path)));
  std::string line;
  std::getline(text, line);
  std::vector<std::string> rows;
  while (std::getline(text, line)) rows.push_back(line);
  return rows;
}

}  // namespace trainyard::core
