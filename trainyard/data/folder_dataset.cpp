#include "trainyard/data/folder_dataset.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/log.h"
#include "trainyard/core/parallel.h"
#include "trainyard/core/thread.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr int kMaxDepth = 32;
constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

// Those of torchvision's extensions that can be decoded here.
bool is_image(std::string_view name) {
  static constexpr std::array<std::string_view, 3> kExtensions = {".jpg", ".jpeg", ".png"};
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return std::any_of(kExtensions.begin(), kExtensions.end(),
                     [&](std::string_view extension) { return lower.ends_with(extension); });
}

// A folder and the images in it, by name.
struct Listing {
  std::string path;
  std::vector<std::string> images;
};

void list_below(core::FileSystem& files, const std::string& path, int depth, std::vector<Listing>& listings) {
  if (depth > kMaxDepth) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "folders of images nest too deep",
                                              .where = path,
                                              .expected = fmt::format("at most {} levels", kMaxDepth),
                                              .remedy = "look for a link that leads back to its own folder"});
  }
  Listing listing{.path = path};
  for (const std::string& name : files.list(path)) {
    if (is_image(name)) {
      listing.images.push_back(name);
    } else if (const std::string below = core::join_path(path, name); is_directory(files, below)) {
      list_below(files, below, depth + 1, listings);
    }
  }
  listings.push_back(std::move(listing));
}

}  // namespace

bool is_directory(core::FileSystem& files, const std::string& path) {
  return files.exists(path) && files.info(path).is_directory;
}

bool holds_class_folders(core::FileSystem& files, const std::string& directory) {
  for (const std::string& name : files.list(directory)) {
    const std::string path = core::join_path(directory, name);
    if (name.starts_with(".") || !is_directory(files, path)) continue;
    const std::vector<std::string> names = files.list(path);
    if (std::any_of(names.begin(), names.end(), is_image)) return true;
  }
  return false;
}

FolderDataset::FolderDataset(const DatasetOptions& options, const std::string& root) : files_(*options.files) {
  for (const std::string& name : files_.list(root)) {
    if (is_directory(files_, core::join_path(root, name))) classes_.push_back(name);
  }
  std::vector<std::vector<Listing>> listings(classes_.size());
  core::for_each_parallel(classes_.size(), core::available_cores(), [&](size_t label) {
    list_below(files_, core::join_path(root, classes_[label]), 0, listings[label]);
    std::sort(listings[label].begin(), listings[label].end(),
              [](const Listing& a, const Listing& b) { return a.path < b.path; });
  });
  std::vector<std::string> empty;
  for (size_t label = 0; label < classes_.size(); ++label) {
    const size_t before = places_.size();
    for (const Listing& listing : listings[label]) {
      folders_.push_back({listing.path, static_cast<uint32_t>(label)});
      for (const std::string& name : listing.images) {
        places_.push_back(
            {static_cast<uint32_t>(folders_.size() - 1), static_cast<uint32_t>(name.size()), names_.size()});
        names_ += name;
      }
    }
    if (places_.size() == before) empty.push_back(classes_[label]);
  }
  if (places_.empty()) {
    throw NoSuchSubset({.problem = "class folders hold no images",
                        .where = root,
                        .expected = "files with .jpg, .jpeg or .png",
                        .actual = fmt::format("none in {} folders", classes_.size())});
  }
  if (!empty.empty()) {
    constexpr size_t kNamed = 5;
    const size_t named = std::min(empty.size(), kNamed);
    core::log::warning("{}: {} of {} classes have no image: {}{}", root, empty.size(), classes_.size(),
                       fmt::join(empty.begin(), empty.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                       named < empty.size() ? ", ..." : "");
  }
}

std::string FolderDataset::path_of(const Place& place) const {
  return core::join_path(folders_[place.folder].path,
                         std::string_view(names_).substr(place.name_begin, place.name_length));
}

core::Result<Record> FolderDataset::read(int64_t index) const {
  const Place& place = places_[index];
  Record record{.label = folders_[place.folder].label, .where = path_of(place)};
  const auto file = files_.open_read(record.where);
  if (file->size() > kMaxFileBytes) {
    return Error(ErrorCode::kCorruptData, {.problem = "image file is too large",
                                           .where = record.where,
                                           .expected = fmt::format("at most {} bytes", kMaxFileBytes),
                                           .actual = fmt::format("{}", file->size())});
  }
  record.bytes.resize(file->size());
  file->read_at(0, record.bytes);
  return record;
}

}  // namespace trainyard::data
