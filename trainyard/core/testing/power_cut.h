// What a power cut leaves of files: names as they are, but of each file only the bytes that were synced. Shows that a
// way of saving needs its syncs. For tests only.
//
//   PowerCut disk;
//   save(*make_file_system(disk), directory);
//   disk.cut(directory);
//   load(directory);  // what was synced is there, what was not is lost
#pragma once

#include <map>
#include <mutex>
#include <string>

#include <unistd.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/system_calls.h"

namespace trainyard::core {

class PowerCut : public SystemCalls {
 public:
  ssize_t write(int descriptor, const void* bytes, size_t count) override {
    remember(descriptor, false);
    const ssize_t result = SystemCalls::write(descriptor, bytes, count);
    struct stat status {};
    if (result >= 0 && SystemCalls::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
      const std::lock_guard lock(mutex_);
      written_bytes_[status.st_ino] = status.st_size;
    }
    return result;
  }

  int fsync(int descriptor) override {
    const int result = SystemCalls::fsync(descriptor);
    if (result == 0) remember(descriptor, true);
    return result;
  }

  int syncfs(int descriptor) override {
    const int result = SystemCalls::syncfs(descriptor);
    const std::lock_guard lock(mutex_);
    if (result == 0) synced_bytes_ = written_bytes_;
    return result;
  }

  // Takes from each file below `directory` that was written through this object what was not synced. Returns the number
  // of files that lost something.
  int cut(const std::string& directory) {
    int lost = 0;
    for (const std::string& name : local_file_system().list(directory)) {
      const std::string path = join_path(directory, name);
      struct stat status {};
      if (SystemCalls::lstat(path.c_str(), &status) != 0) continue;
      if (S_ISDIR(status.st_mode)) {
        lost += cut(path);
        continue;
      }
      const std::lock_guard lock(mutex_);
      const auto synced = synced_bytes_.find(status.st_ino);
      if (synced == synced_bytes_.end() || synced->second >= status.st_size) continue;
      lost += ::truncate(path.c_str(), synced->second) == 0;
    }
    return lost;
  }

 private:
  // Notes the size of a file that is synced, or that a file is about to get its first bytes.
  void remember(int descriptor, bool synced) {
    struct stat status {};
    if (SystemCalls::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return;
    const std::lock_guard lock(mutex_);
    const auto [place, first] = synced_bytes_.try_emplace(status.st_ino, status.st_size);
    // A file that was truncated has lost its synced bytes already.
    if (synced || status.st_size < place->second) place->second = status.st_size;
  }

  std::mutex mutex_;
  std::map<ino_t, off_t> synced_bytes_, written_bytes_;  // by inode, which a rename keeps
};

}  // namespace trainyard::core
