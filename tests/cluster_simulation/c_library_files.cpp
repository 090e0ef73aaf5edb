// The C library's files, as simulated processes with an environment of their own see them: /proc, the folders of
// launches, the program mpirun, and the addresses of a machine. All other files are the real ones.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "tests/cluster_simulation/c_library_descriptors.h"
#include "tests/cluster_simulation/real_call.h"
#include "tests/cluster_simulation/stream.h"
#include "tests/cluster_simulation/world.h"
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wredundant-decls"

namespace trainyard::cluster_simulation {
namespace {

constexpr std::string_view kFolders = "trainyard-launch-";

// Returns the world whose process has files of its own; null for all others.
World* world_of_files() {
  World* const world = World::entered();
  return world != nullptr && !world->own_process().environment.empty() ? world : nullptr;
}

Machine& own_machine(World& world) {
  return *world.own_process().machine;
}

// Whether a path is of Machine::files: "/tmp/trainyard-launch-1001-abcdef", or below it.
bool is_of_launch(std::string_view path) {
  return path.starts_with(fmt::format("/tmp/{}", kFolders)) || path.starts_with(fmt::format("/dev/shm/{}", kFolders));
}

bool is_folder(std::string_view path) {
  return std::count(path.begin(), path.end(), '/') == (path.starts_with("/dev/shm/") ? 3 : 2);
}

// Whether /proc shows a process: one whose end nothing waits for is gone.
bool is_shown(const Process& process, const Machine& machine) {
  return process.machine == &machine && !process.waited_for && !(process.ended && process.parent == nullptr);
}

std::shared_ptr<OpenFile> open_folder(World& world, const std::string& path) {
  auto folder = std::make_shared<OpenFile>(own_machine(world), path);
  if (path == "/proc") {
    for (const auto& process : world.processes()) {
      if (is_shown(*process, own_machine(world))) {
        folder->names.push_back(std::to_string(World::number_of(*process)));
      }
    }
    return folder;
  }
  for (const std::string& each : own_machine(world).files) {
    if (!each.starts_with(path + "/")) continue;
    const std::string name = each.substr(path.size() + 1);
    if (name.find('/') == std::string::npos) folder->names.push_back(name);
  }
  return folder;
}

// A folder that is read entry by entry, in the place of the C library's.
struct ReadFolder {
  int descriptor = -1;
  std::shared_ptr<Descriptor> folder;
  size_t next = 0;
  dirent entry{};
};
std::set<void*>& read_folders() {
  static std::set<void*> all;
  return all;
}
ReadFolder* read_folder(DIR* folder) {
  return read_folders().contains(folder) ? reinterpret_cast<ReadFolder*>(folder) : nullptr;
}

int open_path(World& world, const std::string& path, int flags) {
  auto& files = own_machine(world).files;
  if (path == "/dev/null") return add_descriptor(world, std::make_shared<NullDevice>());
  if (path == "/proc" || path == "/tmp" || path == "/dev/shm") return add_descriptor(world, open_folder(world, path));
  if ((flags & O_CREAT) != 0) files.insert(path);
  if (!files.contains(path)) {
    errno = ENOENT;
    return -1;
  }
  if (is_folder(path)) return add_descriptor(world, open_folder(world, path));
  if ((flags & O_DIRECTORY) == 0) {
    return add_descriptor(world, std::make_shared<OpenFile>(own_machine(world), path));
  }
  errno = ENOTDIR;
  return -1;
}

bool is_simulated_path(std::string_view path) {
  return path == "/dev/null" || path == "/proc" || path == "/tmp" || path == "/dev/shm" || is_of_launch(path);
}

// Returns the path of a name in the folder `descriptor`, where that is simulated; else "".
std::string path_in(World& world, int descriptor, const char* name) {
  if (name[0] == '/') return is_simulated_path(name) ? name : "";
  Descriptor* const found = find_descriptor(world, descriptor);
  OpenFile* const folder = found == nullptr ? nullptr : found->as_file();
  return folder == nullptr ? "" : folder->path + "/" + name;
}

int remove_path(World& world, const std::string& path) {
  auto& files = own_machine(world).files;
  const bool is_full =
      std::any_of(files.begin(), files.end(), [&](const std::string& each) { return each.starts_with(path + "/"); });
  if (!is_full && files.erase(path) > 0) return 0;
  errno = is_full ? ENOTEMPTY : ENOENT;
  return -1;
}

// Returns a real file with this text.
FILE* file_of(const std::string& text) {
  const int descriptor = ::memfd_create("text", 0);
  FILE* const file = ::fdopen(descriptor, "w+");
  std::fwrite(text.data(), 1, text.size(), file);
  std::rewind(file);
  return file;
}

struct OwnAddresses {
  ifaddrs entries[2]{};
  sockaddr_in addresses[2]{};
};

}  // namespace
}  // namespace trainyard::cluster_simulation

using namespace trainyard::cluster_simulation;  // NOLINT: the definitions below are outside of all namespaces

#pragma GCC visibility push(default)  // other libraries are to find these
extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  World* const world = world_of_files();
  if (world == nullptr || !is_simulated_path(path)) TRAINYARD_REAL(open, nullptr, path, flags, mode);
  world->pass();
  return open_path(*world, path, flags);
}

int openat(int folder, const char* name, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  World* const world = world_of_files();
  const std::string path = world == nullptr ? "" : path_in(*world, folder, name);
  if (path.empty()) TRAINYARD_REAL(openat, nullptr, folder, name, flags, mode);
  world->pass();
  return open_path(*world, path, flags);
}

FILE* fopen64(const char* path, const char* mode) {
  World* const world = world_of_files();
  int number = 0, end = 0;
  const bool is_process = world != nullptr && std::sscanf(path, "/proc/%d/%n", &number, &end) == 1 && end > 0;
  if (!is_process) TRAINYARD_REAL(fopen64, nullptr, path, mode);
  for (const auto& process : world->processes()) {
    if (World::number_of(*process) != number || !is_shown(*process, own_machine(*world))) continue;
    if (std::string_view(path + end) != "status") break;
    const int parent = process->parent == nullptr ? 1 : World::number_of(*process->parent);
    return file_of(fmt::format("Name:\t{}\nPid:\t{}\nPPid:\t{}\n", process->name, number, parent));
  }
  errno = ENOENT;
  return nullptr;
}

DIR* fdopendir(int descriptor) {
  World* const world = world_of_files();
  Descriptor* const found = world == nullptr ? nullptr : find_descriptor(*world, descriptor);
  if (found == nullptr || found->as_file() == nullptr) TRAINYARD_REAL(fdopendir, nullptr, descriptor);
  auto* const folder =
      new ReadFolder{.descriptor = descriptor, .folder = world->own_process().descriptors.at(descriptor)};
  read_folders().insert(folder);
  return reinterpret_cast<DIR*>(folder);
}

dirent* readdir(DIR* folder) {
  ReadFolder* const read = read_folder(folder);
  if (read == nullptr) TRAINYARD_REAL(readdir, nullptr, folder);
  const OpenFile& file = *read->folder->as_file();
  if (read->next == file.names.size()) return nullptr;
  const std::string& name = file.names[read->next++];
  read->entry.d_type = file.path == "/proc" || is_folder(file.path + "/" + name) ? DT_DIR : DT_REG;
  std::snprintf(read->entry.d_name, sizeof(read->entry.d_name), "%s", name.c_str());
  return &read->entry;
}

int closedir(DIR* folder) {
  ReadFolder* const read = read_folder(folder);
  if (read == nullptr) TRAINYARD_REAL(closedir, nullptr, folder);
  ::close(read->descriptor);
  read_folders().erase(folder);
  delete read;
  return 0;
}

int dirfd(DIR* folder) {
  ReadFolder* const read = read_folder(folder);
  if (read == nullptr) TRAINYARD_REAL(dirfd, nullptr, folder);
  return read->descriptor;
}

int unlinkat(int folder, const char* name, int flags) {
  World* const world = world_of_files();
  const std::string path = world == nullptr ? "" : path_in(*world, folder, name);
  if (path.empty()) TRAINYARD_REAL(unlinkat, nullptr, folder, name, flags);
  return remove_path(*world, path);
}

int remove(const char* path) {
  World* const world = world_of_files();
  if (world == nullptr || !is_of_launch(path)) TRAINYARD_REAL(remove, nullptr, path);
  return remove_path(*world, path);
}

int rename(const char* from, const char* to) {
  World* const world = world_of_files();
  if (world == nullptr || !is_of_launch(from)) TRAINYARD_REAL(rename, nullptr, from, to);
  Machine& machine = own_machine(*world);
  machine.files.erase(from);
  machine.files.insert(to);
  // The lock is of the file, whatever its name.
  machine.file_locks[to] += std::exchange(machine.file_locks[from], 0);
  return 0;
}

char* mkdtemp(char* name) {
  World* const world = world_of_files();
  if (world == nullptr || !is_of_launch(name)) TRAINYARD_REAL(mkdtemp, nullptr, name);
  constexpr size_t kDrawn = 6;
  for (char* each = name + std::strlen(name) - kDrawn; *each != '\0'; ++each) {
    *each = static_cast<char>('a' + world->draws().below(26));
  }
  own_machine(*world).files.insert(name);
  return name;
}

int flock(int descriptor, int operation) {
  World* const world = world_of_files();
  Descriptor* const found = world == nullptr ? nullptr : find_descriptor(*world, descriptor);
  OpenFile* const file = found == nullptr ? nullptr : found->as_file();
  if (file == nullptr) TRAINYARD_REAL(flock, nullptr, descriptor, operation);
  if ((operation & LOCK_EX) != 0 && file->is_locked_by_others()) {
    errno = EWOULDBLOCK;
    return -1;
  }
  file->lock(true);
  return 0;
}

int lstat(const char* path, struct stat* status) {
  World* const world = world_of_files();
  if (world == nullptr || !is_of_launch(path)) TRAINYARD_REAL(lstat, nullptr, path, status);
  if (!own_machine(*world).files.contains(path)) {
    errno = ENOENT;
    return -1;
  }
  *status = {};
  status->st_mode = is_folder(path) ? S_IFDIR | S_IRWXU : S_IFREG | S_IRUSR;
  status->st_uid = ::geteuid();
  return 0;
}

int access(const char* path, int mode) {
  if (world_of_files() == nullptr) TRAINYARD_REAL(access, nullptr, path, mode);
  if (std::string_view(path) == "/bin/mpirun" || std::string_view(path) == "/dev/shm") return 0;
  errno = ENOENT;
  return -1;
}

int getifaddrs(ifaddrs** list) {
  World* const world = World::entered();
  if (world == nullptr) TRAINYARD_REAL(getifaddrs, nullptr, list);
  auto* const own = new OwnAddresses;
  own->addresses[0].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  own->addresses[1].sin_addr.s_addr = htonl(address_of(own_machine(*world)));
  for (int i = 0; i < 2; ++i) {
    own->addresses[i].sin_family = AF_INET;
    own->entries[i].ifa_addr = reinterpret_cast<sockaddr*>(&own->addresses[i]);
    own->entries[i].ifa_next = i == 0 ? &own->entries[1] : nullptr;
  }
  *list = &own->entries[0];
  return 0;
}

void freeifaddrs(ifaddrs* list) {
  if (World::entered() == nullptr) TRAINYARD_REAL(freeifaddrs, nullptr, list);
  delete reinterpret_cast<OwnAddresses*>(list);
}

}  // extern "C"
#pragma GCC visibility pop
