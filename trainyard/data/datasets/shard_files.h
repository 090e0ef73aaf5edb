// Opens the files of a data set when they are read, and limits how many are open: a process may have about 1,000 open
// files, and large data sets have more.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// May be used by many threads.
class ShardFiles {
 public:
  // `files` must outlive it.
  explicit ShardFiles(core::FileSystem& files, size_t open_limit = 128) : files_(files), open_limit_(open_limit) {}

  // Adds a file as it is now (which file, its size and time of change). Files are numbered from 0 in this order.
  void add(const std::string& path);

  size_t count() const { return shards_.size(); }
  const std::string& path(size_t shard) const { return shards_[shard].path; }
  // Returns the file as it was when it was added.
  const core::FileInfo& info(size_t shard) const { return shards_[shard].info; }
  uint64_t size(size_t shard) const { return shards_[shard].info.size; }

  // Returns the file, which stays open as long as the result is held. Throws kCorruptData when the file has changed
  // since it was added, else what opening it throws. It never returns another file's bytes.
  [[nodiscard]] std::shared_ptr<const core::ReadableFile> open(size_t shard) const;

 private:
  struct Shard {
    std::string path{};
    core::FileInfo info{};
  };
  struct Entry {
    size_t shard{};
    std::shared_ptr<const core::ReadableFile> file{};
  };

  core::FileSystem& files_;
  size_t open_limit_;
  std::vector<Shard> shards_;
  mutable std::mutex mutex_;       // guards everything below
  mutable std::list<Entry> open_;  // most recently used first
  mutable std::unordered_map<size_t, std::list<Entry>::iterator> by_shard_;
};

}  // namespace trainyard::data
