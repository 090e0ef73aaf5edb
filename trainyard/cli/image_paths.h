// The images that a user names for `trainyard predict`, one after the other.
#pragma once

#include <deque>
#include <fstream>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/error.h"

namespace trainyard::cli {

// Files as they are; folders as all images in and below them, by name; lists as the paths in them, one a line, which
// are read as they are asked for. One thread at a time.
class ImagePaths {
 public:
  // `named`: files, folders, and "-" for the list on `standard_input`. `list`: the path of a list, "-", or empty.
  // Throws kNotFound when there is no such list.
  ImagePaths(std::vector<std::string> named, const std::string& list, std::istream& standard_input);
  ~ImagePaths();

  // The next path; nothing after the last. An error for a folder that holds no image or cannot be listed.
  std::optional<core::Result<std::string>> next();

 private:
  core::Result<std::string> opened(const std::string& name);
  std::optional<std::string> next_name();

  std::deque<std::string> named_;
  std::istream& standard_input_;
  std::ifstream list_file_;
  std::istream* list_ = nullptr;   // that is being read
  std::deque<std::string> below_;  // of the folder that was named last
};

}  // namespace trainyard::cli
