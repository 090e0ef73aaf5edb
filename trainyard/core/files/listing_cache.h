// A file system that lists each directory once. The start of a run lists a folder of data several times, which takes
// long on a network.
//
//   core::ListingCache files(core::local_file_system());
//   files.list("data");      // asks the machine
//   files.list("data");      // does not
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::core {

// Forwards every call to another file system, which must outlive it, except for list(). list() returns the result of
// the first call for the same path, until invalidate() is called or something is written, renamed or removed through
// this object. Files that other processes make or remove meanwhile are not seen. A call that throws is not cached. Any
// thread may call it.
class ListingCache : public FileSystem {
 public:
  explicit ListingCache(FileSystem& files) : files_(files) {}

  std::unique_ptr<ReadableFile> open_read(const std::string& path) override { return files_.open_read(path); }
  std::unique_ptr<WritableFile> open_write(const std::string& path) override;
  std::unique_ptr<WritableFile> open_append(const std::string& path) override;
  bool exists(const std::string& path) override { return files_.exists(path); }
  FileInfo info(const std::string& path) override { return files_.info(path); }
  std::vector<std::string> list(const std::string& directory) override;
  void make_directories(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  bool link_file(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void remove_tree(const std::string& path) override;
  void sync_directory(const std::string& directory) override { files_.sync_directory(directory); }
  void sync_tree(const std::string& directory) override { files_.sync_tree(directory); }
  // Drops the cached listings: the next list() reads the directory.
  void invalidate();

 private:
  FileSystem& files_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> listings_;
};

}  // namespace trainyard::core
