#include "trainyard/core/testing/fault_injector.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>

namespace trainyard::core {

void FaultInjector::fail_nth(int n, Fault fault) {
  std::lock_guard lock(mutex_);
  fail_at_ = n;
  fault_ = fault;
  and_later_writes_ = false;
}

void FaultInjector::fail_writes_from_nth(int n, Fault fault) {
  fail_nth(n, fault);
  std::lock_guard lock(mutex_);
  and_later_writes_ = true;
}

bool FaultInjector::reached() const {
  return fail_at_ > 0 && calls() >= fail_at_;
}

int FaultInjector::calls() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(log_.size());
}

std::vector<std::string> FaultInjector::log() const {
  std::lock_guard lock(mutex_);
  return log_;
}

FaultInjector::Outcome FaultInjector::next(std::string call, bool writes) {
  std::lock_guard lock(mutex_);
  log_.push_back(std::move(call));
  const int number = static_cast<int>(log_.size());
  const bool chosen = and_later_writes_ ? writes && number >= fail_at_ : number == fail_at_;
  if (fail_at_ == 0 || !chosen) return Outcome::kWork;
  switch (fault_) {
    case Fault::kIoError:
      errno = EIO;
      return Outcome::kFail;
    case Fault::kNoSpace:
      errno = ENOSPC;
      return Outcome::kFail;
    case Fault::kInterrupted:
      errno = EINTR;
      return Outcome::kFail;
    case Fault::kShort:
      return Outcome::kShorten;
  }
  return Outcome::kWork;
}

int FaultInjector::open(const char* path, int flags, mode_t mode) {
  return fails(std::string("open ") + path, (flags & O_CREAT) != 0) ? -1 : SystemCalls::open(path, flags, mode);
}

int FaultInjector::close(int descriptor) {
  // Linux releases the descriptor even when close reports an error.
  const bool failed = fails("close", true);
  const int error = errno;
  const int result = SystemCalls::close(descriptor);
  if (!failed) return result;
  errno = error;
  return -1;
}

ssize_t FaultInjector::pread(int descriptor, void* bytes, size_t count, off_t offset) {
  const Outcome outcome = next("pread", false);
  if (outcome == Outcome::kFail) return -1;
  if (outcome == Outcome::kShorten) count = std::max<size_t>(count / 2, 1);
  return SystemCalls::pread(descriptor, bytes, count, offset);
}

ssize_t FaultInjector::write(int descriptor, const void* bytes, size_t count) {
  const Outcome outcome = next("write", true);
  if (outcome == Outcome::kFail) return -1;
  if (outcome == Outcome::kShorten) count = std::max<size_t>(count / 2, 1);
  return SystemCalls::write(descriptor, bytes, count);
}

int FaultInjector::fsync(int descriptor) {
  return fails("fsync", true) ? -1 : SystemCalls::fsync(descriptor);
}

int FaultInjector::syncfs(int descriptor) {
  return fails("syncfs", true) ? -1 : SystemCalls::syncfs(descriptor);
}

int FaultInjector::flock(int descriptor, int operation) {
  return fails("flock", false) ? -1 : SystemCalls::flock(descriptor, operation);
}

int FaultInjector::fstat(int descriptor, struct stat* status) {
  return fails("fstat", false) ? -1 : SystemCalls::fstat(descriptor, status);
}

int FaultInjector::stat(const char* path, struct stat* status) {
  return fails(std::string("stat ") + path, false) ? -1 : SystemCalls::stat(path, status);
}

int FaultInjector::lstat(const char* path, struct stat* status) {
  return fails(std::string("lstat ") + path, false) ? -1 : SystemCalls::lstat(path, status);
}

int FaultInjector::rename(const char* from, const char* to) {
  return fails(std::string("rename ") + from + " " + to, true) ? -1 : SystemCalls::rename(from, to);
}

int FaultInjector::link(const char* from, const char* to) {
  return fails(std::string("link ") + from + " " + to, true) ? -1 : SystemCalls::link(from, to);
}

int FaultInjector::unlink(const char* path) {
  return fails(std::string("unlink ") + path, false) ? -1 : SystemCalls::unlink(path);
}

int FaultInjector::mkdir(const char* path, mode_t mode) {
  return fails(std::string("mkdir ") + path, true) ? -1 : SystemCalls::mkdir(path, mode);
}

int FaultInjector::rmdir(const char* path) {
  return fails(std::string("rmdir ") + path, false) ? -1 : SystemCalls::rmdir(path);
}

int FaultInjector::list(const char* path, std::vector<std::string>& names) {
  return fails(std::string("list ") + path, false) ? -1 : SystemCalls::list(path, names);
}

}  // namespace trainyard::core
