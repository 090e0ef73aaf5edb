// A small interface to the file system, through which the library does all its reading and writing. Tests can make any
// operation fail (core/testing/fault_injector.h).
//
// Short reads, short writes and EINTR are handled inside. What comes out is complete, or an Error (kIo, kNoSpace,
// kNotFound) that names the path. Any thread may call all methods. One file object belongs to one thread at a time,
// except for ReadableFile::read_at, which many threads may call at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"

namespace trainyard::core {
class SystemCalls;
}

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  virtual const std::string& path() const = 0;
  // Returns how many bytes the file had when it was opened.
  [[nodiscard]] virtual uint64_t size() const = 0;
  // Fills `out` from `offset`. Throws kCorruptData when the file ends before that, so an allocation made for `out`
  // must already have been checked against size().
  virtual void read_at(uint64_t offset, std::span<std::byte> out) const = 0;
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes without reporting errors: call close() first

  virtual const std::string& path() const = 0;
  // Appends `bytes`. Up to 64 KiB are kept back until flush, sync or close. After an error the file is broken: every
  // later call throws.
  virtual void write(std::span<const std::byte> bytes) = 0;
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Gives buffered bytes to the operating system. Another process that reads the file then sees them.
  virtual void flush() = 0;
  // Blocks until the bytes are on the medium.
  virtual void sync() = 0;
  // Writes what is buffered and closes the file. The content is known to be written only when it has returned. Later
  // calls do nothing.
  virtual void close() = 0;
};

struct FileInfo {
  uint64_t size = 0;  // bytes
  bool is_directory = false;
  // Nanoseconds since the Unix epoch. Kernels stamp files with a clock that advances every few milliseconds only, so
  // two files that are written one after the other may have the same time.
  int64_t modified_ns = 0;
  // The inode. Where it differs, another file has taken the name.
  uint64_t file_id = 0;

  bool operator==(const FileInfo&) const = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual std::unique_ptr<ReadableFile> open_read(const std::string& path) = 0;
  // Creates the file, or empties an existing one.
  virtual std::unique_ptr<WritableFile> open_write(const std::string& path) = 0;
  // Creates the file, or continues at the end of an existing one.
  virtual std::unique_ptr<WritableFile> open_append(const std::string& path) = 0;

  virtual bool exists(const std::string& path) = 0;
  virtual FileInfo info(const std::string& path) = 0;
  // Returns the names, not paths, in a directory, sorted.
  [[nodiscard]] virtual std::vector<std::string> list(const std::string& directory) = 0;
  // Makes the directory and its parents. An existing one is no error.
  virtual void make_directories(const std::string& path) = 0;
  // Renames `from` to `to`, which is replaced if it is a file; a directory must not exist there. Atomic on one file
  // system.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Gives the file `from` the second name `to` (a hard link), which must not exist. Returns false, and does nothing,
  // where that cannot be: on a file system without hard links, or across two of them.
  [[nodiscard]] virtual bool link_file(const std::string& from, const std::string& to);
  virtual void remove_file(const std::string& path) = 0;
  // Removes a directory with all that it holds. A missing one is no error.
  virtual void remove_tree(const std::string& path) = 0;
  // Makes renames and new names inside `directory` durable.
  virtual void sync_directory(const std::string& directory) = 0;
  // Makes all files in and below `directory`, which are closed and on one file system, and their names durable. For
  // many small files: on the machine's disks it takes one call, not one for each file.
  virtual void sync_tree(const std::string& directory);

  // Returns the whole file. Throws kCorruptData, before allocating, when it is larger than `limit_bytes`.
  [[nodiscard]] std::string read_file(const std::string& path, uint64_t limit_bytes = uint64_t{1} << 30);
  // Writes the whole file durably, or leaves the old one: writes under a temporary name, syncs, renames, and syncs the
  // directory.
  void write_file_atomically(const std::string& path, std::string_view content);
};

// Returns the machine's files. The object lives as long as the program.
FileSystem& local_file_system();
// Returns the machine's files through the given system calls, which must outlive it: for tests that make calls fail.
[[nodiscard]] std::unique_ptr<FileSystem> make_file_system(SystemCalls& system);

// Returns "a/b" for "a" and "b", and `name` alone when it is absolute or `directory` is empty.
[[nodiscard]] std::string join_path(std::string_view directory, std::string_view name);
// Returns "out" for "out/" and "out//", and "/" for "/": other names are made by appending to it.
[[nodiscard]] std::string without_slashes(std::string path);
// Returns the one absolute path of a file or folder of the machine, however it is written: without links, "." and ".."
// as far as it is there, and without slashes at its end. Returns `path` where that cannot be known.
[[nodiscard]] std::string real_path(const std::string& path);
// Returns the part before the last '/', and "." when there is none.
[[nodiscard]] std::string parent_path(std::string_view path);
// Returns the part after the last '/'.
[[nodiscard]] std::string base_name(std::string_view path);

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
