#include "trainyard/data/datasets/shard_files.h"

#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {
namespace {

std::string describe(const core::FileInfo& info) {
  return fmt::format("{} bytes, changed at {} ns, file {}", info.size, info.modified_ns, info.file_id);
}

}  // namespace

void ShardFiles::add(const std::string& path) {
  shards_.push_back({path, files_.info(path)});
}

std::shared_ptr<const core::ReadableFile> ShardFiles::open(size_t shard) const {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = by_shard_.find(shard); found != by_shard_.end()) {
      open_.splice(open_.begin(), open_, found->second);
      return open_.front().file;
    }
  }
  const auto& [path, info] = shards_[shard];
  std::shared_ptr<const core::ReadableFile> file = files_.open_read(path);
  const core::FileInfo now = files_.info(path);
  if (now != info || file->size() != info.size) {
    throw core::Error(core::ErrorCode::kCorruptData,
                      {.problem = "file has changed since the data set was opened",
                       .where = path,
                       .expected = describe(info),
                       .actual = describe(now),
                       .remedy = "start again, and leave the data as it is during a run"});
  }
  std::lock_guard lock(mutex_);
  if (by_shard_.contains(shard)) return file;  // another thread was quicker
  open_.push_front({shard, file});
  by_shard_[shard] = open_.begin();
  if (open_.size() > open_limit_) {
    by_shard_.erase(open_.back().shard);
    open_.pop_back();
  }
  return file;
}

}  // namespace trainyard::data
