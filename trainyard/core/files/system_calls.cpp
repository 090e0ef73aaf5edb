#include "trainyard/core/files/system_calls.h"

#include <cerrno>
#include <cstdio>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace trainyard::core {

int SystemCalls::open(const char* path, int flags, mode_t mode) {
  return ::open(path, flags, mode);
}

int SystemCalls::close(int descriptor) {
  return ::close(descriptor);
}

ssize_t SystemCalls::pread(int descriptor, void* bytes, size_t count, off_t offset) {
  return ::pread(descriptor, bytes, count, offset);
}

ssize_t SystemCalls::write(int descriptor, const void* bytes, size_t count) {
  return ::write(descriptor, bytes, count);
}

int SystemCalls::fsync(int descriptor) {
  return ::fsync(descriptor);
}

int SystemCalls::syncfs(int descriptor) {
  return ::syncfs(descriptor);
}

int SystemCalls::flock(int descriptor, int operation) {
  return ::flock(descriptor, operation);
}

int SystemCalls::fstat(int descriptor, struct stat* status) {
  return ::fstat(descriptor, status);
}

int SystemCalls::stat(const char* path, struct stat* status) {
  return ::stat(path, status);
}

int SystemCalls::lstat(const char* path, struct stat* status) {
  return ::lstat(path, status);
}

int SystemCalls::rename(const char* from, const char* to) {
  return ::rename(from, to);
}

int SystemCalls::link(const char* from, const char* to) {
  return ::link(from, to);
}

int SystemCalls::unlink(const char* path) {
  return ::unlink(path);
}

int SystemCalls::mkdir(const char* path, mode_t mode) {
  return ::mkdir(path, mode);
}

int SystemCalls::rmdir(const char* path) {
  return ::rmdir(path);
}

int SystemCalls::list(const char* path, std::vector<std::string>& names) {
  names.clear();
  DIR* directory = ::opendir(path);
  if (directory == nullptr) return -1;
  errno = 0;  // readdir tells the end from an error only by errno
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error = errno;
  ::closedir(directory);
  errno = error;
  return error == 0 ? 0 : -1;
}

}  // namespace trainyard::core
