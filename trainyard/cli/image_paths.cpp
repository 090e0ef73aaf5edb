#include "trainyard/cli/image_paths.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <istream>
#include <iterator>
#include <system_error>
#include <utility>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/codecs/image_formats.h"
#include "trainyard/data/datasets/image_files.h"

namespace trainyard::cli {
namespace {

constexpr const char* kStandardInput = "-";

}  // namespace

ImagePaths::ImagePaths(std::vector<std::string> named, const std::string& list, std::istream& standard_input)
    : named_(std::make_move_iterator(named.begin()), std::make_move_iterator(named.end())),
      standard_input_(standard_input),
      list_name_(list) {
  if (list == kStandardInput) named_.emplace_back(kStandardInput);
  ends_ = std::find(named_.begin(), named_.end(), kStandardInput) == named_.end();
  if (list.empty() || list == kStandardInput) return;
  core::FileSystem& files = core::local_file_system();
  if (!files.exists(list) || files.info(list).is_directory) {
    throw core::Error(core::ErrorCode::kNotFound, {.problem = "there is no such list of images",
                                                   .where = list,
                                                   .actual = files.exists(list) ? "a folder" : "no such file",
                                                   .remedy = "name a file with one path a line: --images_from=FILE"});
  }
  std::error_code unknown;
  ends_ = ends_ && std::filesystem::is_regular_file(list, unknown);
  list_file_.open(list);
  // What cannot be opened would read as a list without paths.
  if (!list_file_) throw core::system_error(errno, "read the list of images", list);
  list_ = &list_file_;
}

ImagePaths::~ImagePaths() = default;

std::optional<std::string> ImagePaths::next_name() {
  for (;;) {
    while (list_ != nullptr) {
      std::string line;
      if (!std::getline(*list_, line)) {
        if (list_->bad()) {
          throw core::Error(core::ErrorCode::kIo, {.problem = "the list of images cannot be read to its end",
                                                   .where = list_ == &list_file_ ? list_name_ : "standard input",
                                                   .remedy = "copy it into another file, and name that"});
        }
        list_ = nullptr;
        break;
      }
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) return line;
    }
    if (named_.empty()) return std::nullopt;
    std::string name = std::move(named_.front());
    named_.pop_front();
    if (name != kStandardInput) return name;
    list_ = &standard_input_;
  }
}

// The first image of a folder, whose others are kept; else the name itself.
core::Result<std::string> ImagePaths::opened(const std::string& name) {
  core::FileSystem& files = core::local_file_system();
  try {
    if (!files.exists(name) || !files.info(name).is_directory) return name;
    const std::vector<std::string> images = data::images_below(files, name);
    if (images.empty()) {
      return core::Error(core::ErrorCode::kNotFound, {.problem = "the folder holds no images",
                                                      .where = name,
                                                      .expected = "files with " + data::image_extension_names()});
    }
    below_.assign(images.begin() + 1, images.end());
    return images.front();
  } catch (const core::Error& error) {
    return error;
  }
}

std::optional<core::Result<std::string>> ImagePaths::next() {
  if (ahead_.empty()) return find_next();
  core::Result<std::string> path = std::move(ahead_.front());
  ahead_.pop_front();
  return path;
}

std::optional<std::vector<std::string>> ImagePaths::list_ahead() {
  if (!ends_) return std::nullopt;
  while (auto path = find_next()) ahead_.push_back(std::move(*path));
  std::vector<std::string> paths;
  for (core::Result<std::string>& path : ahead_) {
    if (path.ok()) paths.push_back(path.value());
  }
  return paths;
}

std::optional<core::Result<std::string>> ImagePaths::find_next() {
  if (!below_.empty()) {
    std::string path = std::move(below_.front());
    below_.pop_front();
    return path;
  }
  const std::optional<std::string> name = next_name();
  if (!name) return std::nullopt;
  return opened(*name);
}

}  // namespace trainyard::cli
