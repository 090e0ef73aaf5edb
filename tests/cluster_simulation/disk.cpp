#include "tests/cluster_simulation/disk.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include <fcntl.h>

namespace trainyard::cluster_simulation {
namespace {

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

SimulatedDisk::SimulatedDisk(uint64_t seed, DiskOptions options) : draws_(seed), options_(options) {
  root_ = new_node(true);
}

std::shared_ptr<SimulatedDisk::Node> SimulatedDisk::new_node(bool is_directory) {
  auto node = std::make_shared<Node>();
  node->number = ++nodes_;
  node->is_directory = is_directory;
  node->modified = ++time_;
  return node;
}

bool SimulatedDisk::begin(const char* call, const std::string& path, bool writes) {
  ++calls_;
  World* const world = World::entered();
  if (world != nullptr) {
    if (options_.slowest > 0) {
      world->sleep_until(world->now() + draws_.between(0, options_.slowest));
    } else {
      world->pass();
    }
    world->trace("disk:", call, path);
  }
  if (draws_.chance(options_.interrupt_chance)) {
    errno = EINTR;
    return false;
  }
  if (writes && draws_.chance(options_.error_chance)) {
    if (world != nullptr) world->trace("disk: the call fails");
    errno = EIO;
    return false;
  }
  return true;
}

std::shared_ptr<SimulatedDisk::Node> SimulatedDisk::find(const std::string& path) {
  std::shared_ptr<Node> node = root_;
  for (const std::string& part : parts_of(path)) {
    if (!node->is_directory) {
      errno = ENOTDIR;
      return nullptr;
    }
    const auto found = node->names.find(part);
    if (found == node->names.end()) {
      errno = ENOENT;
      return nullptr;
    }
    node = found->second;
  }
  return node;
}

SimulatedDisk::Place SimulatedDisk::place_of(const std::string& path) {
  const std::vector<std::string> parts = parts_of(path);
  if (parts.empty()) return {};
  std::string directory = "/";
  for (size_t i = 0; i + 1 < parts.size(); ++i) directory += parts[i] + "/";
  return {find(directory), parts.back()};
}

void SimulatedDisk::change(Node& directory, const std::string& name, std::shared_ptr<Node> node) {
  if (node) {
    directory.names[name] = std::move(node);
  } else {
    directory.names.erase(name);
  }
  directory.modified = ++time_;
  directory.changes.push_back(directory.names);
}

std::shared_ptr<SimulatedDisk::Node> SimulatedDisk::opened(int descriptor) {
  const auto found = open_.find(descriptor);
  if (found != open_.end()) return found->second;
  errno = EBADF;
  return nullptr;
}

uint64_t SimulatedDisk::used_bytes() const {
  const std::function<uint64_t(const Node&)> count = [&](const Node& node) {
    uint64_t bytes = node.cached.size();
    for (const auto& [name, each] : node.names) bytes += count(*each);
    return bytes;
  };
  return count(*root_);
}

int SimulatedDisk::open(const char* path, int flags, mode_t /*mode*/) {
  const bool creates = (flags & O_CREAT) != 0;
  if (!begin("open", path, creates)) return -1;
  std::shared_ptr<Node> node = find(path);
  if (!node) {
    if (!creates) return -1;
    const Place place = place_of(path);
    if (!place.directory) return -1;
    node = new_node(false);
    change(*place.directory, place.name, node);
  }
  if ((flags & O_DIRECTORY) != 0 && !node->is_directory) return fail(ENOTDIR);
  if ((flags & O_ACCMODE) != O_RDONLY && node->is_directory) return fail(EISDIR);
  if ((flags & O_TRUNC) != 0) {
    node->cached.clear();
    node->modified = ++time_;
  }
  open_[next_descriptor_] = std::move(node);
  return next_descriptor_++;
}

int SimulatedDisk::close(int descriptor) {
  return open_.erase(descriptor) == 1 ? 0 : fail(EBADF);
}

ssize_t SimulatedDisk::pread(int descriptor, void* bytes, size_t count, off_t offset) {
  if (!begin("pread", "", false)) return -1;
  const std::shared_ptr<Node> node = opened(descriptor);
  if (!node) return -1;
  const auto from = std::min(static_cast<size_t>(offset), node->cached.size());
  count = std::min(count, node->cached.size() - from);
  if (count > 1 && draws_.chance(options_.short_chance)) count = 1 + draws_.below(count);
  std::memcpy(bytes, node->cached.data() + from, count);
  return static_cast<ssize_t>(count);
}

ssize_t SimulatedDisk::write(int descriptor, const void* bytes, size_t count) {
  if (!begin("write", std::to_string(count), true)) return -1;
  const std::shared_ptr<Node> node = opened(descriptor);
  if (!node) return -1;
  if (count > 1 && draws_.chance(options_.short_chance)) count = 1 + draws_.below(count);
  const uint64_t used = options_.capacity == UINT64_MAX ? 0 : used_bytes();
  if (used >= options_.capacity) return fail(ENOSPC);
  count = static_cast<size_t>(std::min<uint64_t>(count, options_.capacity - used));
  node->cached.append(static_cast<const char*>(bytes), count);
  node->modified = ++time_;
  return static_cast<ssize_t>(count);
}

int SimulatedDisk::fsync(int descriptor) {
  const std::shared_ptr<Node> node = opened(descriptor);
  if (!node) return -1;
  if (!begin(node->is_directory ? "fsync of a directory" : "fsync", "", true)) {
    if (errno == EIO) node->lost = true;
    return -1;
  }
  if (node->is_directory) {
    if (!options_.directory_syncs_work) return 0;
    node->synced_names = node->names;
    node->changes.clear();
  } else if (options_.file_syncs_work && !node->lost) {
    node->synced = node->cached;
  }
  return 0;
}

int SimulatedDisk::flock(int /*descriptor*/, int /*operation*/) {
  return 0;
}

void SimulatedDisk::fill(const Node& node, struct stat* status) const {
  *status = {};
  status->st_mode = node.is_directory ? S_IFDIR | 0755 : S_IFREG | 0644;
  status->st_ino = node.number;
  status->st_size = static_cast<off_t>(node.cached.size());
  status->st_mtim = {.tv_sec = node.modified / 1000, .tv_nsec = node.modified % 1000};
}

int SimulatedDisk::fstat(int descriptor, struct stat* status) {
  const std::shared_ptr<Node> node = opened(descriptor);
  if (!node) return -1;
  fill(*node, status);
  return 0;
}

int SimulatedDisk::stat(const char* path, struct stat* status) {
  if (!begin("stat", path, false)) return -1;
  const std::shared_ptr<Node> node = find(path);
  if (!node) return -1;
  fill(*node, status);
  return 0;
}

int SimulatedDisk::lstat(const char* path, struct stat* status) {
  return stat(path, status);
}

int SimulatedDisk::rename(const char* from, const char* to) {
  if (!begin("rename", std::string(from) + " " + to, true)) return -1;
  const Place source = place_of(from), target = place_of(to);
  if (!source.directory || !target.directory) return -1;
  const auto found = source.directory->names.find(source.name);
  if (found == source.directory->names.end()) return fail(ENOENT);
  const std::shared_ptr<Node> node = found->second;
  const auto replaced = target.directory->names.find(target.name);
  if (replaced != target.directory->names.end() && replaced->second->is_directory && !replaced->second->names.empty()) {
    return fail(ENOTEMPTY);
  }
  if (source.directory == target.directory) {
    // One change: never both names, and never none.
    source.directory->names.erase(source.name);
    change(*target.directory, target.name, node);
  } else {
    change(*target.directory, target.name, node);
    change(*source.directory, source.name, nullptr);
  }
  return 0;
}

int SimulatedDisk::link(const char* from, const char* to) {
  if (!begin("link", std::string(from) + " " + to, true)) return -1;
  const std::shared_ptr<Node> node = find(from);
  if (!node) return -1;
  if (node->is_directory) return fail(EPERM);
  const Place target = place_of(to);
  if (!target.directory) return -1;
  if (target.directory->names.contains(target.name)) return fail(EEXIST);
  change(*target.directory, target.name, node);
  return 0;
}

int SimulatedDisk::unlink(const char* path) {
  if (!begin("unlink", path, false)) return -1;
  const Place place = place_of(path);
  if (!place.directory) return -1;
  const auto found = place.directory->names.find(place.name);
  if (found == place.directory->names.end()) return fail(ENOENT);
  if (found->second->is_directory) return fail(EISDIR);
  change(*place.directory, place.name, nullptr);
  return 0;
}

int SimulatedDisk::mkdir(const char* path, mode_t /*mode*/) {
  if (!begin("mkdir", path, true)) return -1;
  const Place place = place_of(path);
  if (!place.directory) return place.name.empty() ? fail(EEXIST) : -1;
  if (place.directory->names.contains(place.name)) return fail(EEXIST);
  change(*place.directory, place.name, new_node(true));
  return 0;
}

int SimulatedDisk::rmdir(const char* path) {
  if (!begin("rmdir", path, false)) return -1;
  const Place place = place_of(path);
  if (!place.directory) return -1;
  const auto found = place.directory->names.find(place.name);
  if (found == place.directory->names.end()) return fail(ENOENT);
  if (!found->second->is_directory) return fail(ENOTDIR);
  if (!found->second->names.empty()) return fail(ENOTEMPTY);
  change(*place.directory, place.name, nullptr);
  return 0;
}

int SimulatedDisk::list(const char* path, std::vector<std::string>& names) {
  names.clear();
  if (!begin("list", path, false)) return -1;
  const std::shared_ptr<Node> node = find(path);
  if (!node) return -1;
  if (!node->is_directory) return fail(ENOTDIR);
  for (const auto& [name, each] : node->names) names.push_back(name);
  return 0;
}

void SimulatedDisk::settle_file(Node& node) {
  if (node.cached == node.synced) return;
  switch (draws_.below(4)) {
    case 0:
      node.cached = node.synced;
      break;
    case 1:  // all of it had come to the medium by itself
      break;
    case 2:  // a part
      node.cached.resize(draws_.below(node.cached.size() + 1));
      break;
    default:  // its length without its bytes, in blocks
      constexpr size_t kBlock = 512;
      for (size_t at = 0; at < node.cached.size(); at += kBlock) {
        if (draws_.chance(0.5)) continue;
        const size_t end = std::min(at + kBlock, node.cached.size());
        for (size_t i = at; i < end; ++i) node.cached[i] = i < node.synced.size() ? node.synced[i] : '\0';
      }
  }
  node.synced = node.cached;
  node.lost = false;
}

void SimulatedDisk::cut_power(Node& node) {
  if (!node.is_directory) return settle_file(node);
  // Changes of a directory come to the medium in their order, and those of another one at another time.
  if (!node.changes.empty()) {
    const size_t kept = draws_.below(node.changes.size() + 1);
    if (kept > 0) node.synced_names = node.changes[kept - 1];
    node.changes.clear();
  }
  node.names = node.synced_names;
  for (const auto& [name, each] : node.names) cut_power(*each);
}

void SimulatedDisk::cut_power() {
  open_.clear();
  cut_power(*root_);
}

}  // namespace trainyard::cluster_simulation
