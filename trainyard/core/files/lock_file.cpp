#include "trainyard/core/files/lock_file.h"

#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/core/system/host_name.h"
#include "trainyard/core/system/system_files.h"

namespace trainyard::core {
namespace {

constexpr uint64_t kMostBytes = 64 << 10;
constexpr size_t kLongestCommand = 2000;  // bytes
// Holders that end remove the file, so that another one has to be opened. They do not do it that often.
constexpr int kMostTries = 100;

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// When a process of this machine began, in ticks since the machine started; empty when there is no such process, or it
// has ended and its parent has not asked how.
std::string start_of(const std::string& process) {
  const std::string text = read_system_file("/proc/" + process + "/stat").value_or("");
  // "pid (name) state ...": the name may hold anything, so fields are counted behind its end. The start is field 22.
  size_t at = text.rfind(')');
  if (at != std::string::npos && text.compare(at, 3, ") Z") == 0) return "";
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos ? "" : text.substr(at + 1, text.find(' ', at + 1) - at - 1);
}

std::string own_command() {
  std::string text = read_system_file("/proc/self/cmdline").value_or("");
  if (text.ends_with('\0')) text.pop_back();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';  // also the zeros between the arguments
  }
  return text.size() <= kLongestCommand ? text : text.substr(0, kLongestCommand) + " ...";
}

// Processes of another boot of the machine, or of another container, have numbers of their own.
std::string own_numbering() {
  std::array<char, 64> space{};
  [[maybe_unused]] const ssize_t count = ::readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  return space.data();
}
std::string own_boot() {
  return first_line(read_system_file("/proc/sys/kernel/random/boot_id").value_or(""));
}

std::string own_text() {
  const std::string process = fmt::format("{}", ::getpid());
  return fmt::format(
      "host: {}\nprocess: {}\nsince: {:%Y-%m-%dT%H:%M:%SZ}\ncommand: {}\nboot: {}\nstarted: {}\nnumbering: {}\n",
      host_name(), process, fmt::gmtime(std::time(nullptr)), own_command(), own_boot(), start_of(process),
      own_numbering());
}

// Whether the process that wrote `text` still runs. Nothing: it cannot be known here.
std::optional<bool> is_alive(const std::string& text) {
  if (proc_value(text, "host") != host_name()) return std::nullopt;
  if (proc_value(text, "boot") != own_boot()) return false;
  if (proc_value(text, "numbering") != own_numbering()) return std::nullopt;
  return start_of(proc_value(text, "process")) == proc_value(text, "started");
}

Error taken(const std::string& path, const std::string& text, bool by_text) {
  const std::string holder =
      text.empty() ? "one that has not said who it is"
                   : fmt::format("process {} on host {}, since {}: {}", proc_value(text, "process"),
                                 proc_value(text, "host"), proc_value(text, "since"), proc_value(text, "command"));
  return {ErrorCode::kInvalidArgument,
          {.problem = "another run writes into this folder",
           .where = path,
           .actual = holder,
           .remedy = by_text ? fmt::format("wait for it or use another folder; if it has ended, remove {}", path)
                             : "wait for it, stop it, or use another folder"}};
}

SystemCalls& machine() {
  static auto* const calls = new SystemCalls;  // never destroyed: locks may be given back by static objects
  return *calls;
}

}  // namespace

bool is_lock_held(const std::string& path) {
  return is_lock_held(path, machine());
}

bool is_lock_held(const std::string& path, SystemCalls& system) {
  if (output_kind(path) != OutputKind::kPlainFile) return false;  // LockFile makes and takes no other
  std::string text;
  try {
    text = make_file_system(system)->read_file(path, kMostBytes);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return false;  // given back meanwhile
    throw;
  }
  if (const std::optional<bool> alive = is_alive(text)) return *alive;
  // Only where the text does not tell: a process that begins while the lock is asked about is refused it.
  constexpr int kPlain = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int descriptor = retry_interrupted([&] { return system.open(path.c_str(), kPlain, 0); });
  if (descriptor == -1 && errno == ENOENT) return false;
  if (descriptor == -1) throw system_error(errno, "look at lock file", path);
  const bool is_free = retry_interrupted([&] { return system.flock(descriptor, LOCK_SH | LOCK_NB); }) == 0;
  // Where the file system has no locks, the text decides, as in claim_by_text().
  const bool is_held = !is_free && (errno == EWOULDBLOCK || !text.empty());
  system.close(descriptor);
  return is_held;
}

LockFile::LockFile(std::string path) : LockFile(std::move(path), machine()) {}

LockFile::LockFile(std::string path, SystemCalls& system)
    : path_(std::move(path)), system_(system), process_(::getpid()) {
  try {
    if (lock()) {
      write_owner();
    } else {
      claim_by_text();
    }
  } catch (...) {
    if (descriptor_ != -1) system_.close(std::exchange(descriptor_, -1));
    throw;
  }
}

LockFile::~LockFile() {
  if (::getpid() == process_) release();
  if (descriptor_ != -1) system_.close(descriptor_);
}

bool LockFile::lock() {
  for (int tries = 0; tries < kMostTries; ++tries) {
    constexpr int kPlain = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    descriptor_ = retry_interrupted([&] { return system_.open(path_.c_str(), O_RDWR | O_CREAT | kPlain, 0666); });
    // Another user's: it can be asked for its lock, and read.
    if (descriptor_ == -1 && errno == EACCES) {
      descriptor_ = retry_interrupted([&] { return system_.open(path_.c_str(), O_RDONLY | kPlain, 0); });
      if (descriptor_ == -1) errno = EACCES;
    }
    if (descriptor_ == -1) {
      const int error = errno;
      require_plain_output(path_);
      throw system_error(error, "make lock file", path_);
    }
    require_plain_output(path_);
    if (retry_interrupted([&] { return system_.flock(descriptor_, LOCK_EX | LOCK_NB); }) == 0) {
      if (is_current()) return true;
    } else if (errno == EWOULDBLOCK) {
      if (const std::optional<std::string> holder = read_current()) throw taken(path_, *holder, false);
    } else if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == EBADF) {
      return false;
    } else {
      throw system_error(errno, "lock file", path_);
    }
    // The holder has just ended and removed the file that this descriptor is of.
    system_.close(std::exchange(descriptor_, -1));
  }
  throw taken(path_, "", false);
}

// The holder's text; none: it has just ended and removed the file.
std::optional<std::string> LockFile::read_current() const {
  try {
    if (is_current()) return make_file_system(system_)->read_file(path_, kMostBytes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
  }
  return std::nullopt;
}

bool LockFile::is_current() const {
  struct stat opened {
  }, named{};
  if (retry_interrupted([&] { return system_.fstat(descriptor_, &opened); }) == -1)
    throw system_error(errno, "look at file", path_);
  if (retry_interrupted([&] { return system_.lstat(path_.c_str(), &named); }) == -1) {
    if (errno == ENOENT) return false;
    throw system_error(errno, "look at file", path_);
  }
  return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

void LockFile::write_owner() {
  const auto files = make_file_system(system_);
  const auto file = files->open_write(path_);
  file->write(own_text());
  file->close();
}

void LockFile::claim_by_text() {
  const auto files = make_file_system(system_);
  const std::string holder = files->read_file(path_, kMostBytes);
  if (!holder.empty() && is_alive(holder).value_or(true)) throw taken(path_, holder, true);
  const std::string own = own_text();
  files->write_file_atomically(path_, own);
  if (const std::string now = files->read_file(path_, kMostBytes); now != own) throw taken(path_, now, true);
  claimed_ = own;
}

// Removed while it is held: whoever opened it before sees that another file, or none, has its name. Where this one was
// removed meanwhile, the name may be another process's by now.
void LockFile::release() {
  try {
    const bool own =
        claimed_.empty() ? is_current() : make_file_system(system_)->read_file(path_, kMostBytes) == claimed_;
    if (!own) return;
  } catch (const Error&) {
    return;
  }
  retry_interrupted([&] { return system_.unlink(path_.c_str()); });
}

}  // namespace trainyard::core
