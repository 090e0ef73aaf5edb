#include "trainyard/frontends/input/data_digest.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/data/datasets/dataset_form.h"
#include "trainyard/data/datasets/folder_dataset.h"

namespace trainyard::frontends {
namespace {

constexpr int64_t kMostFiles = 100'000;

class Walk {
 public:
  explicit Walk(core::FileSystem& files) : files_(files) {}

  // `name` is the path from the data's folder on, `depth` how many folders lie between.
  void add(const std::string& path, const std::string& name, int depth = 0) {
    if (count_ == kMostFiles) {
      more_ = true;
      return;
    }
    const std::optional<core::FileInfo> info = info_of(path);
    if (!info) return;
    if (info->is_directory) {
      // A link to a folder that it lies in has no other files, and no end.
      if (std::find(open_.begin(), open_.end(), *info) == open_.end()) add_folder(path, name + "/", depth + 1);
      return;
    }
    ++count_;
    bytes_ += info->size;
    hash_ = core::stable_hash(fmt::format("{} {}\n", name, info->size), hash_);
  }
  // A folder may be known by another name elsewhere: `prefix` is empty for the one that holds the data.
  void add_folder(const std::string& path, const std::string& prefix, int depth = 0) {
    data::refuse_depth(path, depth);
    open_.push_back(files_.info(path));
    std::vector<std::string> names = files_.list(path);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) add(core::join_path(path, name), prefix + name, depth);
    open_.pop_back();
  }
  std::string text() const {
    return fmt::format("{} files, {} bytes, {:016x}{}", count_, bytes_, hash_, more_ ? ", and more" : "");
  }

 private:
  std::optional<core::FileInfo> info_of(const std::string& path) const {
    try {
      return files_.info(path);
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNotFound) throw;
      return std::nullopt;
    }
  }

  core::FileSystem& files_;
  std::vector<core::FileInfo> open_;  // the folders that lead to the one that is listed, itself the last
  int64_t count_ = 0;
  uint64_t bytes_ = 0, hash_ = core::stable_hash("");
  bool more_ = false;
};

}  // namespace

std::string data_digest(core::FileSystem& files, const std::string& data) {
  Walk walk(files);
  for (const std::string& path : data::paths_named(files, data)) {
    files.info(path).is_directory ? walk.add_folder(path, "") : walk.add(path, core::base_name(path));
  }
  return walk.text();
}

}  // namespace trainyard::frontends
