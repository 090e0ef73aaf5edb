// The operating system's file calls as an object, below all retry loops, so that a test can make any single call fail,
// be interrupted or return a short count (core/testing/fault_injector.h). Only the file system implementation and
// LockFile use it.
#pragma once

#include <cerrno>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

namespace trainyard::core {

// Each method is the system's function of its name: -1 with errno set on failure, EINTR and short counts included.
// May be called from any thread.
class SystemCalls {
 public:
  virtual ~SystemCalls() = default;

  virtual int open(const char* path, int flags, mode_t mode);
  virtual int close(int descriptor);
  virtual ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset);
  virtual ssize_t write(int descriptor, const void* bytes, size_t count);
  virtual int fsync(int descriptor);
  virtual int syncfs(int descriptor);  // Linux, not POSIX
  virtual int flock(int descriptor, int operation);
  virtual int fstat(int descriptor, struct stat* status);
  virtual int stat(const char* path, struct stat* status);
  virtual int lstat(const char* path, struct stat* status);
  virtual int rename(const char* from, const char* to);
  virtual int link(const char* from, const char* to);
  virtual int unlink(const char* path);
  virtual int mkdir(const char* path, mode_t mode);
  virtual int rmdir(const char* path);
  // opendir, readdir and closedir in one: fills `names` (without "." and "..", unsorted), 0 on success.
  virtual int list(const char* path, std::vector<std::string>& names);
};

// Returns the result of `call`, repeated as long as a signal interrupts it.
template <typename Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace trainyard::core
