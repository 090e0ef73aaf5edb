// Lists the images that a user names for `trainyard predict`, one after the other.
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

// Returns files themselves, all images in and below folders, by name, and the paths in lists, one per line, which are
// read on demand. For one thread at a time.
class ImagePaths {
 public:
  // `named` has files, folders, and "-" for a list on `standard_input`. `list` is the path of a list, "-", or empty.
  // Throws kNotFound when there is no such list, kIo when it cannot be opened.
  ImagePaths(std::vector<std::string> named, const std::string& list, std::istream& standard_input);
  ~ImagePaths();

  // Returns the next path, or nothing after the last. Returns an error for a folder that holds no image or cannot be
  // listed. Throws kIo for a list that cannot be read further.
  std::optional<core::Result<std::string>> next();

  // Returns the paths that next() is going to return, but for errors. Nothing where they come from standard input or a
  // pipe: what writes there may wait for the answers.
  std::optional<std::vector<std::string>> list_ahead();

 private:
  core::Result<std::string> opened(const std::string& name);
  std::optional<core::Result<std::string>> find_next();
  std::optional<std::string> next_name();

  std::deque<std::string> named_;
  std::istream& standard_input_;
  std::string list_name_;
  std::ifstream list_file_;
  std::istream* list_ = nullptr;                 // list that is being read
  std::deque<std::string> below_;                // images of the last named folder
  bool ends_ = true;                             // all paths are there already, those of lists included
  std::deque<core::Result<std::string>> ahead_;  // found by list_ahead()
};

}  // namespace trainyard::cli
