#include "trainyard/data/datasets/class_names_file.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/lower_case.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/folder_dataset.h"

namespace trainyard::data {
namespace {

constexpr const char* kFile = "classnames.txt";
constexpr uint64_t kMostFileBytes = uint64_t{64} << 20;
constexpr std::array<std::string_view, 5> kSubsets = {"train", "validation", "val", "valid", "test"};

bool is_named_for_subset(const std::string& directory) {
  const std::string name = core::lower_case(core::base_name(directory));
  return std::find(kSubsets.begin(), kSubsets.end(), name) != kSubsets.end();
}

// Returns the text with "\n" for "\r\n" where all its lines end so, as editors on Windows leave them: the carriage
// returns would be part of the names.
std::string with_plain_line_breaks(const std::string& text) {
  const auto ends_line = [&](size_t at) { return text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n'; };
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\n' && (at == 0 || text[at - 1] != '\r')) return text;
    if (!ends_line(at)) plain += text[at];
  }
  return plain;
}

// Returns an empty path where there is no file.
std::string path_of_names(core::FileSystem& files, const std::string& directory) {
  std::string path = core::join_path(directory, kFile);
  if (files.exists(path)) return path;
  const std::string full = full_path(directory);
  if (!is_named_for_subset(full)) return "";
  path = core::join_path(core::parent_path(full), kFile);
  return files.exists(path) ? path : "";
}

}  // namespace

std::vector<std::string> read_class_names(core::FileSystem& files, const std::string& directory) {
  const std::string path = path_of_names(files, directory);
  return path.empty() ? std::vector<std::string>{} : read_names_file(files, path);
}

std::vector<std::string> read_names_file(core::FileSystem& files, const std::string& path) {
  std::string text = with_plain_line_breaks(files.read_file(path, kMostFileBytes));
  if (!text.ends_with('\n')) text += '\n';
  std::vector<std::string> names = decode_class_names(text);
  while (!names.empty() && names.back().empty()) names.pop_back();
  if (const auto blank = std::find(names.begin(), names.end(), ""); blank != names.end() || names.empty()) {
    throw core::Error(core::ErrorCode::kCorruptData,
                      {.problem = "class names are missing",
                       .where = path,
                       .expected = "the name of a class in each line",
                       .actual = names.empty() ? "none" : fmt::format("line {} is empty", blank - names.begin() + 1),
                       .remedy = "write the names, or remove the file"});
  }
  return names;
}

void write_class_names(core::FileSystem& files, const std::string& directory, std::span<const std::string> names) {
  files.write_file_atomically(core::join_path(directory, kFile), encode_class_names(names));
}

std::vector<std::string> read_folder_order(core::FileSystem& files, const std::string& directory,
                                           std::span<const std::string> folders) {
  std::vector<std::string> names = read_class_names(files, directory);
  const std::unordered_set<std::string_view> known(names.begin(), names.end());
  std::vector<std::string> unknown;
  std::copy_if(folders.begin(), folders.end(), std::back_inserter(unknown),
               [&](const std::string& folder) { return !known.contains(folder); });
  if (names.empty() || unknown.empty()) return names;
  core::log::warning("{} does not name the folders {} of {}: classes are numbered by the order of the folders' names",
                     path_of_names(files, directory), quoted_classes(unknown), directory);
  return {};
}

}  // namespace trainyard::data
