// The machine's files: POSIX calls with their interruptions, short counts and late errors dealt with in one place.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/files/output_path.h"
#include "trainyard/core/files/system_calls.h"

namespace trainyard::core {
namespace {

constexpr size_t kWriteBufferBytes = size_t{64} << 10;
// Linux moves at most 2 GiB - 4 KiB a call; asking for less keeps counts out of that corner.
constexpr size_t kMaxTransferBytes = size_t{1} << 30;

class Descriptor {
 public:
  Descriptor(SystemCalls& system, const std::string& path, int flags, std::string_view operation) : system_(system) {
    value_ = retry_interrupted([&] { return system_.open(path.c_str(), flags | O_CLOEXEC, 0666); });
    if (value_ == -1) throw system_error(errno, operation, path);
  }
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return value_; }
  // 0, or the error number. The descriptor is gone in both cases, also after EINTR, which on Linux is no failure:
  // closing again could close a file that another thread has just opened.
  int close() {
    if (value_ == -1) return 0;
    const int result = system_.close(std::exchange(value_, -1));
    return result == -1 && errno != EINTR ? errno : 0;
  }

 private:
  SystemCalls& system_;
  int value_ = -1;
};

class LocalReadableFile : public ReadableFile {
 public:
  // Without waiting for a pipe's writer: a pipe cannot be read at any offset, and is refused.
  LocalReadableFile(SystemCalls& system, const std::string& path)
      : system_(system), path_(path), descriptor_(system, path, O_RDONLY | O_NONBLOCK, "open file") {
    struct stat status {};
    if (retry_interrupted([&] { return system_.fstat(descriptor_.get(), &status); }) == -1) {
      throw system_error(errno, "read the size of file", path_);
    }
    if (S_ISDIR(status.st_mode)) throw system_error(EISDIR, "open file", path_);
    if (!S_ISREG(status.st_mode)) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "a pipe or device cannot be read like a file",
                                                .where = path_,
                                                .remedy = "write what comes from it into a file first"});
    }
    size_ = static_cast<uint64_t>(status.st_size);
  }

  const std::string& path() const override { return path_; }
  uint64_t size() const override { return size_; }

  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const size_t count = std::min(out.size() - done, kMaxTransferBytes);
      const auto position = static_cast<off_t>(offset + done);
      const ssize_t moved =
          retry_interrupted([&] { return system_.pread(descriptor_.get(), out.data() + done, count, position); });
      if (moved == -1) throw system_error(errno, "read file", path_);
      if (moved == 0) {
        throw Error(ErrorCode::kCorruptData, {.problem = "file ends early",
                                              .where = fmt::format("{} at offset {}", path_, offset),
                                              .expected = fmt::format("{} bytes", out.size()),
                                              .actual = fmt::format("{}", done),
                                              .remedy = "copy or write the file again"});
      }
      done += static_cast<size_t>(moved);
    }
  }

 private:
  SystemCalls& system_;
  const std::string path_;
  Descriptor descriptor_;
  uint64_t size_ = 0;
};

class LocalWritableFile : public WritableFile {
 public:
  LocalWritableFile(SystemCalls& system, const std::string& path, int flags)
      : system_(system), path_(path), descriptor_(system, path, O_WRONLY | flags, "create file") {
    buffer_.reserve(kWriteBufferBytes);
  }
  ~LocalWritableFile() override {
    try {
      close();
    } catch (const Error&) {
      // Whoever wanted to know has called close().
    }
  }

  const std::string& path() const override { return path_; }

  void write(std::span<const std::byte> bytes) override {
    check_usable("write file");
    if (buffer_.size() + bytes.size() > kWriteBufferBytes) flush();
    if (bytes.size() >= kWriteBufferBytes) {
      write_through(bytes);
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
  }

  void flush() override {
    check_usable("write file");
    write_through(buffer_);
    buffer_.clear();
  }

  void sync() override {
    flush();
    // An fsync that failed is never tried again: Linux has dropped the dirty pages and the second call would succeed.
    if (retry_interrupted([&] { return system_.fsync(descriptor_.get()); }) == -1) fail(errno, "sync file");
  }

  void close() override {
    if (closed_) return;
    closed_ = true;
    if (error_number_ == 0) write_through(buffer_);
    if (const int error = descriptor_.close(); error != 0) fail(error, "close file");
    if (error_number_ != 0) throw system_error(error_number_, "write file", path_);
  }

  // Throws where what was opened is a pipe or a device.
  void require_plain() {
    struct stat status {};
    if (retry_interrupted([&] { return system_.fstat(descriptor_.get(), &status); }) == -1) {
      fail(errno, "look at file");
    }
    if (!S_ISREG(status.st_mode)) throw not_a_plain_file(path_, OutputKind::kPipeOrDevice);
  }

 private:
  void check_usable(std::string_view operation) const {
    if (closed_) throw system_error(EBADF, operation, path_);
    if (error_number_ != 0) throw system_error(error_number_, operation, path_);
  }

  [[noreturn]] void fail(int error_number, std::string_view operation) {
    error_number_ = error_number;
    throw system_error(error_number, operation, path_);
  }

  void write_through(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const size_t count = std::min(bytes.size(), kMaxTransferBytes);
      const ssize_t moved = retry_interrupted([&] { return system_.write(descriptor_.get(), bytes.data(), count); });
      if (moved == -1) fail(errno, "write file");
      bytes = bytes.subspan(static_cast<size_t>(moved));
    }
  }

  SystemCalls& system_;
  const std::string path_;
  Descriptor descriptor_;
  std::vector<std::byte> buffer_;
  int error_number_ = 0;  // of the first failure
  bool closed_ = false;
};

// Opens a file that the program has named (output_path.h): no link is followed, and no pipe is waited for.
std::unique_ptr<WritableFile> open_plain(SystemCalls& system, const std::string& path, int flags) {
  try {
    auto file = std::make_unique<LocalWritableFile>(system, path, O_CREAT | O_NOFOLLOW | O_NONBLOCK | flags);
    file->require_plain();
    return file;
  } catch (const Error&) {
    // The system's own words, "too many levels of symbolic links" or "no such device or address", would not help.
    const OutputKind kind = output_kind(path);
    if (kind == OutputKind::kLink || kind == OutputKind::kPipeOrDevice) throw not_a_plain_file(path, kind);
    throw;
  }
}

// Opens /dev/stdout and the like as a copy of the descriptor itself: another one on the same file would begin where the
// file begins, and sockets cannot be opened again.
class StreamCalls : public SystemCalls {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    const std::optional<int> own = own_descriptor(path);
    return own ? ::fcntl(*own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : SystemCalls::open(path, flags, mode);
  }

 private:
  static std::optional<int> own_descriptor(std::string_view path) {
    if (path == "/dev/stdout") return STDOUT_FILENO;
    if (path == "/dev/stderr") return STDERR_FILENO;
    for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
      if (!path.starts_with(folder)) continue;
      path.remove_prefix(folder.size());
      int number = 0;
      const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), number);
      if (error == std::errc() && end == path.data() + path.size()) return number;
    }
    return std::nullopt;
  }
};

class LocalFileSystem : public FileSystem {
 public:
  explicit LocalFileSystem(SystemCalls& system) : system_(system) {}

  std::unique_ptr<ReadableFile> open_read(const std::string& path) override {
    return std::make_unique<LocalReadableFile>(system_, path);
  }
  std::unique_ptr<WritableFile> open_write(const std::string& path) override {
    return open_plain(system_, path, O_TRUNC);
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    return open_plain(system_, path, O_APPEND);
  }

  bool exists(const std::string& path) override {
    struct stat status {};
    if (retry_interrupted([&] { return system_.stat(path.c_str(), &status); }) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    throw system_error(errno, "look for file", path);
  }

  FileInfo info(const std::string& path) override {
    struct stat status {};
    if (retry_interrupted([&] { return system_.stat(path.c_str(), &status); }) == -1) {
      throw system_error(errno, "look at file", path);
    }
    return {.size = static_cast<uint64_t>(status.st_size),
            .is_directory = S_ISDIR(status.st_mode),
            .modified_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
            .file_id = uint64_t{status.st_ino}};
  }

  std::vector<std::string> list(const std::string& directory) override {
    std::vector<std::string> names;
    if (retry_interrupted([&] { return system_.list(directory.c_str(), names); }) == -1) {
      throw system_error(errno, "list directory", directory);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  void make_directories(const std::string& path) override {
    if (path.empty() || make_directory(path) == 0) return;
    if (errno != ENOENT) throw system_error(errno, "make directory", path);
    const std::string trimmed = path.substr(0, path.find_last_not_of('/') + 1);
    make_directories(parent_path(trimmed));
    if (make_directory(path) != 0) throw system_error(errno, "make directory", path);
  }

  void rename(const std::string& from, const std::string& to) override {
    // rename(2) would silently replace an empty directory, and /dev/null for everyone.
    struct stat status {};
    const bool exists = retry_interrupted([&] { return system_.stat(to.c_str(), &status); }) == 0;
    if (exists && S_ISDIR(status.st_mode)) {
      throw system_error(EEXIST, fmt::format("rename {} to an existing directory", from), to);
    }
    if (exists && !S_ISREG(status.st_mode)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "a pipe or device is not replaced by a file", .where = to, .remedy = "name a file"});
    }
    if (retry_interrupted([&] { return system_.rename(from.c_str(), to.c_str()); }) == -1) {
      throw system_error(errno, fmt::format("rename {}", from), to);
    }
  }

  bool link_file(const std::string& from, const std::string& to) override {
    if (retry_interrupted([&] { return system_.link(from.c_str(), to.c_str()); }) == 0) return true;
    // What Linux returns where there are no links, no more of them, or none between the two places.
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK || errno == EXDEV) return false;
    throw system_error(errno, fmt::format("link {}", from), to);
  }

  void remove_file(const std::string& path) override {
    if (retry_interrupted([&] { return system_.unlink(path.c_str()); }) == -1)
      throw system_error(errno, "remove file", path);
  }

  void remove_tree(const std::string& path) override {
    struct stat status {};
    if (retry_interrupted([&] { return system_.lstat(path.c_str(), &status); }) == -1) {
      if (errno == ENOENT) return;
      throw system_error(errno, "look at file", path);
    }
    // A symbolic link is removed, not followed.
    if (!S_ISDIR(status.st_mode)) return remove_file(path);
    for (const std::string& name : list(path)) remove_tree(join_path(path, name));
    if (retry_interrupted([&] { return system_.rmdir(path.c_str()); }) == -1) {
      throw system_error(errno, "remove directory", path);
    }
  }

  void sync_directory(const std::string& directory) override {
    Descriptor descriptor(system_, directory, O_RDONLY | O_DIRECTORY, "open directory");
    if (retry_interrupted([&] { return system_.fsync(descriptor.get()); }) == 0) return;
    // What file systems return that have no sync for directories, some network file systems among them: they keep the
    // names by themselves.
    if (errno == EINVAL || errno == EOPNOTSUPP) return;
    throw system_error(errno, "sync directory", directory);
  }

  // A sync of each file would commit the file system's journal each time.
  void sync_tree(const std::string& directory) override {
    Descriptor descriptor(system_, directory, O_RDONLY | O_DIRECTORY, "open directory");
    if (retry_interrupted([&] { return system_.syncfs(descriptor.get()); }) == -1) {
      throw system_error(errno, "sync the files below directory", directory);
    }
  }

 private:
  // 0 when there is a directory afterwards; else -1 with errno set.
  int make_directory(const std::string& path) {
    if (retry_interrupted([&] { return system_.mkdir(path.c_str(), 0777); }) == 0) return 0;
    if (errno != EEXIST) return -1;
    struct stat status {};
    if (retry_interrupted([&] { return system_.stat(path.c_str(), &status); }) == -1) return -1;
    if (S_ISDIR(status.st_mode)) return 0;
    errno = ENOTDIR;
    return -1;
  }

  SystemCalls& system_;
};

}  // namespace

FileSystem& local_file_system() {
  // Never destroyed: files may be closed by other static objects' destructors.
  static auto* const files = new LocalFileSystem(*new SystemCalls);
  return *files;
}

std::unique_ptr<FileSystem> make_file_system(SystemCalls& system) {
  return std::make_unique<LocalFileSystem>(system);
}

std::unique_ptr<WritableFile> open_stream(const std::string& path) {
  static auto* const calls = new StreamCalls;  // never destroyed, as local_file_system()
  // Opening a pipe without a reader would wait for one, whatever signals come.
  const Descriptor probe(*calls, path, O_WRONLY | O_NONBLOCK, "open pipe or device");
  return std::make_unique<LocalWritableFile>(*calls, path, O_APPEND);
}

}  // namespace trainyard::core
