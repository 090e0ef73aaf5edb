#include "trainyard/parallel/launch/launch_folders.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/system/system_files.h"

namespace trainyard::parallel {
namespace {

constexpr std::string_view kPrefix = "trainyard-launch-";
constexpr const char* kOwnerFile = "/owner";
constexpr size_t kDrawn = 6;  // characters that mkdtemp() draws

// The process whose number is in the name of a folder; nothing for other names.
std::optional<pid_t> process_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  pid_t process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  const std::string_view rest = name.substr(static_cast<size_t>(end - name.data()));
  if (error != std::errc() || process < 1 || rest.size() != 1 + kDrawn || rest[0] != '-') return std::nullopt;
  return process;
}

// When a process of this machine began, in seconds since the Unix epoch; nothing where that cannot be found out.
std::optional<double> start_of(pid_t process) {
  const std::string text = core::read_system_file(fmt::format("/proc/{}/stat", process)).value_or("");
  // "pid (name) state ...": the name may hold anything, so fields are counted behind its end. The start is field 22.
  size_t at = text.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  const std::string machine = core::read_system_file("/proc/stat").value_or("");
  const size_t boot = machine.find("\nbtime ");
  if (at == std::string::npos || boot == std::string::npos) return std::nullopt;
  const double ticks = std::strtod(text.c_str() + at, nullptr);
  return std::strtod(machine.c_str() + boot + 7, nullptr) + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Whether `process` can have made a folder that was last changed at `changed`.
bool lives_since(pid_t process, double changed) {
  if (::kill(process, 0) != 0 && errno == ESRCH) return false;
  constexpr double kClocks = 2;  // seconds that the clocks of processes and files may differ
  const std::optional<double> start = start_of(process);
  return !start || *start <= changed + kClocks;
}

bool is_abandoned(const std::string& folder, pid_t process) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) return false;
  const core::Socket owner(::open((folder + kOwnerFile).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (owner.valid()) {
    if (::flock(owner.descriptor(), LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
  }
  return !lives_since(process, static_cast<double>(status.st_mtim.tv_sec));
}

}  // namespace

std::string temporary_folder() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::temp_directory_path(error);
  if (!error) return path.string();
  std::string where = "/tmp";
  for (const char* const name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {  // as temp_directory_path() looks
    const char* const named = std::getenv(name);
    if (named == nullptr) continue;
    where = named;
    break;
  }
  throw core::Error(core::ErrorCode::kIo, {.problem = "there is no folder for temporary files",
                                           .where = where,
                                           .actual = error.message(),
                                           .remedy = "set TMPDIR to a folder"});
}

std::string make_launch_folder(const std::string& base) {
  std::string path = (std::filesystem::path(base) / fmt::format("{}{}-XXXXXX", kPrefix, ::getpid())).string();
  if (::mkdtemp(path.data()) == nullptr) throw core::system_error(errno, "make a folder for mpirun", path);
  return path;
}

core::Socket hold_launch_folder(const std::string& folder) {
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const std::string path = folder + kOwnerFile, unlocked = path + ".new";
  core::Socket owner(::open(path.c_str(), kFlags));
  const bool is_new = !owner.valid() && errno == ENOENT;
  if (is_new) owner = core::Socket(::open(unlocked.c_str(), kFlags | O_CREAT, 0600));
  if (owner.valid()) ::flock(owner.descriptor(), LOCK_SH | LOCK_NB);
  // It gets its name behind its lock: a launch that starts meanwhile would remove a folder whose file no process holds.
  if (is_new && owner.valid() && ::rename(unlocked.c_str(), path.c_str()) != 0) owner = core::Socket();
  return owner;
}

std::vector<std::string> remove_abandoned_folders(const std::string& base) {
  std::vector<std::string> removed;
  std::error_code ignored;
  for (auto entry = std::filesystem::directory_iterator(base, ignored); !ignored && entry != end(entry);
       entry.increment(ignored)) {
    const std::optional<pid_t> process = process_of(entry->path().filename().string());
    const std::string path = entry->path().string();
    if (!process || !is_abandoned(path, *process)) continue;
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (!error) removed.push_back(path);
  }
  return removed;
}

}  // namespace trainyard::parallel
