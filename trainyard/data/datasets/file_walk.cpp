#include "trainyard/data/datasets/file_walk.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "trainyard/core/base/error.h"

namespace trainyard::data {
namespace {

class Walk {
 public:
  Walk(core::FileSystem& files, FileVisitor& visitor) : files_(files), visitor_(visitor) {}

  // `prefix` is the path from the walked folder to this one: empty, or with a slash at its end.
  void list(const std::string& folder, const core::FileInfo& info, const std::string& prefix, int depth) {
    visitor_.open_folder(folder, depth);
    open_.push_back(info);
    for (const std::string& name : files_.list(folder)) {
      if (visitor_.wants_more()) add(core::join_path(folder, name), prefix + name, depth);
    }
    open_.pop_back();
  }

 private:
  void add(const std::string& path, const std::string& name, int depth) {
    const std::optional<core::FileInfo> info = info_of(path);
    if (!info) return;
    visitor_.visit(name, *info);
    // A link to a folder that it lies in has no other files, and no end.
    if (!info->is_directory || std::find(open_.begin(), open_.end(), *info) != open_.end()) return;
    list(path, *info, name + "/", depth + 1);
  }
  std::optional<core::FileInfo> info_of(const std::string& path) const {
    try {
      return files_.info(path);
    } catch (const core::Error& error) {
      if (error.code() != core::ErrorCode::kNotFound) throw;
      return std::nullopt;  // a dangling link: the reader of its target reports it
    }
  }

  core::FileSystem& files_;
  FileVisitor& visitor_;
  std::vector<core::FileInfo> open_;  // the folders that lead to the one that is listed, itself the last
};

}  // namespace

void walk_files(core::FileSystem& files, const std::string& path, FileVisitor& visitor) {
  const core::FileInfo info = files.info(path);
  if (info.is_directory) {
    Walk(files, visitor).list(path, info, "", 0);
  } else if (visitor.wants_more()) {
    visitor.visit(core::base_name(path), info);
  }
}

}  // namespace trainyard::data
