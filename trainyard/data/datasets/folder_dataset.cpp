#include "trainyard/data/datasets/folder_dataset.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <system_error>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/codecs/image_formats.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/class_names_file.h"
#include "trainyard/data/datasets/image_files.h"
#include "trainyard/data/datasets/left_out_files.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

// A folder and the images in it, by name.
struct Listing {
  std::string path;
  std::vector<std::string> images;
};

// Returns true for a folder whose name ends as an image's does. Asks once a name: a data set may have a million. What
// cannot be looked at is left to read(), which says why.
bool is_folder_of_images(core::FileSystem& files, const std::string& path) {
  try {
    return files.info(path).is_directory;
  } catch (const Error&) {
    return false;
  }
}

void list_below(core::FileSystem& files, const std::string& path, int depth, std::vector<Listing>& listings,
                LeftOutFiles& left_out) {
  refuse_depth(path, depth);
  Listing listing{.path = path};
  for (const std::string& name : files.list(path)) {
    const std::string below = core::join_path(path, name);
    const bool image = is_image_name(name);
    if (image ? is_folder_of_images(files, below) : is_directory(files, below)) {
      list_below(files, below, depth + 1, listings, left_out);
    } else if (image) {
      listing.images.push_back(name);
    } else {
      left_out.add(name);
    }
  }
  listings.push_back(std::move(listing));
}

// Says what lies in the folder and is in no class, or is no image.
void tell_left_out(core::FileSystem& files, const std::string& root, const LeftOutFiles& left_out) {
  if (!left_out.empty()) {
    const std::string remedy = left_out.remedy();
    core::log::warning("{}: files that are not read as images are left out: {}{}{}", root, left_out.text(),
                       remedy.empty() ? "" : "; ", remedy);
  }
  const std::vector<std::string> names = files.list(root);
  const auto images = std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return is_image_name(name) && !is_directory(files, core::join_path(root, name));
  });
  if (images > 0) {
    core::log::warning("{}: {} images lie in no class folder and are left out", root, images);
  }
}

}  // namespace

std::string full_path(const std::string& directory) {
  std::error_code unknown;
  std::filesystem::path full = std::filesystem::absolute(directory, unknown).lexically_normal();
  if (unknown) return directory;
  if (!full.has_filename()) full = full.parent_path();
  return full.string();
}

void refuse_depth(const std::string& path, int depth) {
  constexpr int kMaxDepth = 32;
  if (depth <= kMaxDepth) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "folders of images nest too deep",
                                            .where = path,
                                            .expected = fmt::format("at most {} levels", kMaxDepth),
                                            .remedy = "look for a link that leads back to its own folder"});
}

bool is_directory(core::FileSystem& files, const std::string& path) {
  return files.exists(path) && files.info(path).is_directory;
}

std::vector<std::string> folders_in(core::FileSystem& files, const std::string& directory) {
  std::vector<std::string> folders;
  for (const std::string& name : files.list(directory)) {
    if (!name.starts_with(".") && is_directory(files, core::join_path(directory, name))) folders.push_back(name);
  }
  return folders;
}

std::vector<std::string> class_order(core::FileSystem& files, const std::string& root) {
  std::vector<std::string> folders = folders_in(files, root);
  std::vector<std::string> listed = read_folder_order(files, root, folders);
  return listed.empty() ? std::move(folders) : std::move(listed);
}

bool holds_class_folders(core::FileSystem& files, const std::string& directory) {
  const std::vector<std::string> folders = folders_in(files, directory);
  return std::any_of(folders.begin(), folders.end(), [&](const std::string& name) {
    const std::vector<std::string> names = files.list(core::join_path(directory, name));
    return std::any_of(names.begin(), names.end(), is_image_name);
  });
}

FolderDataset::FolderDataset(const DatasetOptions& options, const std::string& root) : files_(*options.files) {
  const std::vector<std::string> found = folders_in(files_, root);
  const bool known = !options.classes.names.empty();
  classes_ = known ? options.classes.names : class_order(files_, root);
  std::vector<int64_t> labels(found.size());
  std::iota(labels.begin(), labels.end(), 0);
  if (known) labels = labels_of_classes(found, options.classes, root);
  if (!known) labels = labels_of_classes(found, {.names = classes_, .origin = "classnames.txt"}, root);
  std::vector<std::vector<Listing>> listings(found.size());
  std::vector<LeftOutFiles> left_out(found.size());
  core::for_each_parallel(found.size(), core::available_cores(), [&](size_t folder) {
    list_below(files_, core::join_path(root, found[folder]), 0, listings[folder], left_out[folder]);
    std::sort(listings[folder].begin(), listings[folder].end(),
              [](const Listing& a, const Listing& b) { return a.path < b.path; });
  });
  std::vector<std::string> empty, skipped;
  size_t skipped_images = 0;
  LeftOutFiles all_left_out;
  for (size_t folder = 0; folder < found.size(); ++folder) {
    const size_t images = std::accumulate(listings[folder].begin(), listings[folder].end(), size_t{0},
                                          [](size_t sum, const Listing& l) { return sum + l.images.size(); });
    if (labels[folder] < 0) {
      skipped.push_back(found[folder]);
      skipped_images += images;
      continue;
    }
    all_left_out.add(left_out[folder]);
    if (images == 0) empty.push_back(found[folder]);
    const size_t class_length = core::join_path(root, found[folder]).size();
    for (const Listing& listing : listings[folder]) add(listing.path, listing.images, labels[folder], class_length);
  }
  tell_left_out(files_, root, all_left_out);
  if (!skipped.empty()) {
    core::log::warning("{}: {} images of {} unknown classes are left out: {}", root, skipped_images, skipped.size(),
                       quoted_classes(skipped));
  }
  if (places_.empty()) {
    throw NoSuchSubset({.problem = "class folders hold no images",
                        .where = root,
                        .expected = "files with " + image_extension_names(),
                        .actual = fmt::format("none in {} folders", found.size() - skipped.size())});
  }
  if (!known && found.size() - empty.size() == 1) {
    core::log::warning("{}: all images are of one class, {}: there is nothing to tell apart", root,
                       quoted_class(classes_[static_cast<size_t>(label(0))]));
  }
  if (!empty.empty()) {
    core::log::warning("{}: {} of {} classes have no image: {}", root, empty.size(), found.size(),
                       quoted_classes(empty));
  }
}

void FolderDataset::add(const std::string& path, const std::vector<std::string>& images, int64_t label,
                        size_t class_length) {
  folders_.push_back({path, static_cast<uint32_t>(label), static_cast<uint32_t>(class_length)});
  for (const std::string& name : images) {
    places_.push_back({static_cast<uint32_t>(folders_.size() - 1), static_cast<uint32_t>(name.size()), names_.size()});
    names_ += name;
  }
}

std::string FolderDataset::path_of(const Place& place) const {
  return core::join_path(folders_[place.folder].path,
                         std::string_view(names_).substr(place.name_begin, place.name_length));
}

std::string FolderDataset::name_in_class(int64_t index) const {
  const Place& place = places_[index];
  return path_of(place).substr(folders_[place.folder].class_length + 1);
}

core::Result<Record> FolderDataset::read(int64_t index) const {
  const Place& place = places_[index];
  const uint32_t label = folders_[place.folder].label;
  Record record{.label = label, .label_text = classes_[label], .where = path_of(place)};
  core::Result<std::vector<std::byte>> bytes = read_image_file(files_, record.where);
  if (!bytes.ok()) return bytes.error();
  record.bytes = std::move(bytes.value());
  return record;
}

}  // namespace trainyard::data
