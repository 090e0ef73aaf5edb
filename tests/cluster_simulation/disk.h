// A simulated disk below the library's file system (core/files/system_calls.h). The system's cache is ahead of the
// medium, and a power cut leaves of what was not synced any part.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cluster_simulation/random_draws.h"
#include "tests/cluster_simulation/world.h"

#include "trainyard/core/files/system_calls.h"

namespace trainyard::cluster_simulation {

struct DiskOptions {
  double error_chance = 0;         // that a call which writes or creates fails with EIO
  double short_chance = 0;         // that a call moves less than asked for
  double interrupt_chance = 0;     // that a call is interrupted by a signal
  Nanos slowest = 0;               // longest time of a call, of a thread of a world
  uint64_t capacity = UINT64_MAX;  // bytes; more is ENOSPC
  // Mistakes of a file system, or of a program that forgets to sync: such a call does nothing and returns 0.
  bool file_syncs_work = true, directory_syncs_work = true;
};

class SimulatedDisk final : public core::SystemCalls {
 public:
  SimulatedDisk(uint64_t seed, DiskOptions options);

  DiskOptions& options() { return options_; }
  // The power fails: what was not synced is lost, is there, or is there in part.
  void cut_power();
  // Closes what a killed process had open. The cache stays.
  void close_all() { open_.clear(); }
  uint64_t calls() const { return calls_; }

  int open(const char* path, int flags, mode_t mode) override;
  int close(int descriptor) override;
  ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset) override;
  ssize_t write(int descriptor, const void* bytes, size_t count) override;
  int fsync(int descriptor) override;
  int flock(int descriptor, int operation) override;
  int fstat(int descriptor, struct stat* status) override;
  int stat(const char* path, struct stat* status) override;
  int lstat(const char* path, struct stat* status) override;
  int rename(const char* from, const char* to) override;
  int link(const char* from, const char* to) override;
  int unlink(const char* path) override;
  int mkdir(const char* path, mode_t mode) override;
  int rmdir(const char* path) override;
  int list(const char* path, std::vector<std::string>& names) override;

 private:
  struct Node;
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  struct Node {
    uint64_t number = 0;
    bool is_directory = false;
    int64_t modified = 0;
    // A file's bytes in the cache and on the medium.
    std::string cached, synced;
    bool lost = false;  // a sync has failed: the cache is taken for clean, and is not on the medium
    // A directory's names in the cache, on the medium, and how the former came from the latter, a change at a time.
    Names names, synced_names;
    std::vector<Names> changes;
  };
  struct Place {
    std::shared_ptr<Node> directory;
    std::string name;
  };

  // Begins a call: takes its time. Returns false, with errno set, when it fails.
  bool begin(const char* call, const std::string& path, bool writes);
  std::shared_ptr<Node> new_node(bool is_directory);
  std::shared_ptr<Node> find(const std::string& path);
  Place place_of(const std::string& path);
  void change(Node& directory, const std::string& name, std::shared_ptr<Node> node);
  std::shared_ptr<Node> opened(int descriptor);
  void fill(const Node& node, struct stat* status) const;
  uint64_t used_bytes() const;
  void cut_power(Node& node);
  void settle_file(Node& node);

  RandomDraws draws_;
  DiskOptions options_;
  std::shared_ptr<Node> root_;
  std::map<int, std::shared_ptr<Node>> open_;
  uint64_t nodes_ = 0, calls_ = 0;
  int64_t time_ = 0;
  int next_descriptor_ = 2'000'000;
};

}  // namespace trainyard::cluster_simulation
