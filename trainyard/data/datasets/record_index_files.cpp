#include "trainyard/data/datasets/record_index_files.h"

#include <filesystem>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/machine/user_cache.h"
#include "trainyard/core/random/random.h"
#include "trainyard/formats/records/record_index.h"

namespace trainyard::data {
namespace {

constexpr size_t kWorthKeeping = 100;  // records: ImageNet's shards have 1,251

}  // namespace

std::string find_index_file(core::FileSystem& files, const std::string& shard, const std::string& directory) {
  const std::string name = core::base_name(shard) + ".idx", beside = core::parent_path(shard);
  for (const std::string& place : directory.empty() ? std::vector<std::string>{core::join_path(beside, "idx"), beside}
                                                    : std::vector<std::string>{directory}) {
    std::string path = core::join_path(place, name);
    if (files.exists(path)) return path;
  }
  return "";
}

void require_index_folder(core::FileSystem& files, const std::string& directory) {
  if (directory.empty() || files.exists(directory)) return;
  throw core::Error(
      core::ErrorCode::kNotFound,
      {.problem = "there is no such folder of index files", .where = directory, .remedy = "check --data_index_dir"});
}

std::string kept_index_file(const std::string& shard, const core::FileInfo& info) {
  const std::string folder = core::user_cache_folder("record_indexes");
  if (folder.empty()) return "";
  std::error_code unknown;
  const std::string path = std::filesystem::absolute(shard, unknown).string();
  const std::string identity = fmt::format("{} {} {} {}", path, info.size, info.modified_ns, info.file_id);
  return core::join_path(folder, fmt::format("{}-{:016x}.idx", core::base_name(shard), core::stable_hash(identity)));
}

void keep_index(core::FileSystem& files, const std::string& path, const formats::RecordIndex& index) {
  if (path.empty() || index.size() < kWorthKeeping) return;
  try {
    files.make_directories(core::parent_path(path));
    files.write_file_atomically(path, formats::format_record_index(index));
  } catch (const core::Error& error) {
    core::log::debug("the index of a shard is not kept: {}", error.what());
  }
}

}  // namespace trainyard::data
