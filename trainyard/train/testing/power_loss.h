// A file system on which the power fails: what was not synced is gone, as on a disk that writes back late. For tests of
// code that promises durability.
//
//   PowerLossFileSystem files({.at_operation = 7});
//   try { save(files); } catch (const PowerLoss&) {}
//   files.settle(LostThings::kDataAndNames);  // the disk as it is found after the restart
//   load(core::local_file_system());
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::train {

struct PowerLoss {};

// Names (created files, renames) may reach the medium before the data in the files, or not at all.
enum class LostThings { kData, kDataAndNames };

struct PowerLossOptions {
  int at_operation = std::numeric_limits<int>::max();  // from 1; this one and all later ones throw PowerLoss
  bool file_sync_works = true;
  bool directory_sync_works = true;
};

class PowerLossFileSystem : public core::FileSystem {
 public:
  explicit PowerLossFileSystem(PowerLossOptions options) : options_(options) {}

  bool lost() const { return operations_ >= options_.at_operation; }

  // Takes away what was not synced. All files must be closed.
  void settle(LostThings lost) {
    for (const auto& [path, synced] : synced_bytes_) {
      if (real_.exists(path) && real_.info(path).size > synced &&
          ::truncate(path.c_str(), static_cast<off_t>(synced))) {
        throw core::system_error(errno, "truncate", path);
      }
    }
    if (lost == LostThings::kData) return;
    for (auto change = unsynced_names_.rbegin(); change != unsynced_names_.rend(); ++change) {
      if (change->from.empty()) {
        real_.remove_tree(change->to);
      } else if (real_.exists(change->to)) {
        real_.rename(change->to, change->from);
      }
    }
  }

  std::unique_ptr<core::ReadableFile> open_read(const std::string& path) override { return real_.open_read(path); }
  bool exists(const std::string& path) override { return real_.exists(path); }
  core::FileInfo info(const std::string& path) override { return real_.info(path); }
  std::vector<std::string> list(const std::string& directory) override { return real_.list(directory); }

  std::unique_ptr<core::WritableFile> open_write(const std::string& path) override {
    operate();
    if (!real_.exists(path)) unsynced_names_.push_back({"", path});
    synced_bytes_[path] = 0;
    return std::make_unique<File>(*this, real_.open_write(path));
  }
  std::unique_ptr<core::WritableFile> open_append(const std::string& path) override { return open_write(path); }
  void make_directories(const std::string& path) override {
    if (real_.exists(path)) return;
    operate();
    real_.make_directories(path);
    unsynced_names_.push_back({"", plain(path)});
  }
  void rename(const std::string& from, const std::string& to) override {
    operate();
    real_.rename(from, to);
    std::map<std::string, uint64_t> synced;
    for (const auto& [path, bytes] : synced_bytes_) synced[moved(path, from, to)] = bytes;
    synced_bytes_ = std::move(synced);
    unsynced_names_.push_back({from, to});
  }
  bool link_file(const std::string& from, const std::string& to) override {
    operate();
    if (!real_.link_file(from, to)) return false;
    const auto synced = synced_bytes_.find(from);
    if (synced != synced_bytes_.end()) synced_bytes_[to] = synced->second;
    unsynced_names_.push_back({"", to});
    return true;
  }
  // Removals reach the medium at once: the worst case for those who remove before the successor is durable.
  void remove_file(const std::string& path) override {
    operate();
    real_.remove_file(path);
  }
  void remove_tree(const std::string& path) override {
    operate();
    real_.remove_tree(path);
  }
  void sync_directory(const std::string& directory) override {
    operate();
    if (!options_.directory_sync_works) return;
    std::vector<Change> remaining;
    for (const Change& change : unsynced_names_) {
      if (core::parent_path(change.to) != plain(directory)) {
        remaining.push_back(change);
        continue;
      }
      // This rename will not be undone: what happened inside before it lies under the new name.
      if (!change.from.empty()) {
        for (Change& earlier : remaining) earlier.to = moved(earlier.to, change.from, change.to);
      }
    }
    unsynced_names_ = std::move(remaining);
  }

 private:
  struct Change {
    std::string from;  // empty: created
    std::string to;    // as it was called then
  };

  // Without slashes at its end.
  static std::string plain(const std::string& path) { return path.substr(0, path.find_last_not_of('/') + 1); }

  // The path of what was at `path` after a rename.
  static std::string moved(const std::string& path, const std::string& from, const std::string& to) {
    return path == from || path.starts_with(from + "/") ? to + path.substr(from.size()) : path;
  }

  class File : public core::WritableFile {
   public:
    File(PowerLossFileSystem& owner, std::unique_ptr<core::WritableFile> real)
        : owner_(owner), real_(std::move(real)) {}
    const std::string& path() const override { return real_->path(); }
    using core::WritableFile::write;
    void write(std::span<const std::byte> bytes) override {
      owner_.operate();
      real_->write(bytes);
    }
    void flush() override { real_->flush(); }
    void sync() override {
      owner_.operate();
      real_->flush();
      if (owner_.options_.file_sync_works) owner_.synced_bytes_[path()] = owner_.real_.info(path()).size;
    }
    void close() override { real_->close(); }

   private:
    PowerLossFileSystem& owner_;
    std::unique_ptr<core::WritableFile> real_;
  };

  void operate() {
    if (++operations_ >= options_.at_operation) throw PowerLoss{};
  }

  const PowerLossOptions options_;
  core::FileSystem& real_ = core::local_file_system();
  int operations_ = 0;
  std::map<std::string, uint64_t> synced_bytes_;
  std::vector<Change> unsynced_names_;
};

}  // namespace trainyard::train
