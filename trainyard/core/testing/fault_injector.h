// Makes one chosen system call of a file system fail, to show that what uses files survives it or reports it.
//
//   for (int n = 1;; ++n) {
//     FaultInjector faults;
//     faults.fail_nth(n, Fault::kNoSpace);
//     auto files = make_file_system(faults);
//     save(*files);  // succeeds, or throws core::Error
//     ... the previous file still loads ...
//     if (!faults.reached()) break;  // save makes fewer than n calls: every one has failed once
//   }
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "trainyard/core/files/system_calls.h"

namespace trainyard::core {

enum class Fault {
  kIoError,      // the call fails with EIO
  kNoSpace,      // the call fails with ENOSPC
  kInterrupted,  // the call fails with EINTR, having done nothing
  kShort,        // pread and write move half of the bytes (at least one); other calls work as usual
};

// The system calls of the machine, counted, with one of them made to fail. May be called from any thread.
class FaultInjector : public SystemCalls {
 public:
  // The n-th call from construction on fails, n >= 1. Replaces an earlier choice.
  void fail_nth(int n, Fault fault);
  // The n-th call and all later calls which write or create fail: a disk that is full stays full. Reading and removing
  // continue to work.
  void fail_writes_from_nth(int n, Fault fault);

  // Whether the chosen call was made.
  bool reached() const;
  // Calls made so far.
  int calls() const;
  // The calls in order, "fsync" or "rename from to" or "open path".
  std::vector<std::string> log() const;

  int open(const char* path, int flags, mode_t mode) override;
  int close(int descriptor) override;
  ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset) override;
  ssize_t write(int descriptor, const void* bytes, size_t count) override;
  int fsync(int descriptor) override;
  int syncfs(int descriptor) override;
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
  enum class Outcome { kWork, kFail, kShorten };

  // Counts the call and decides what becomes of it; sets errno for kFail.
  Outcome next(std::string call, bool writes);
  bool fails(std::string call, bool writes) { return next(std::move(call), writes) == Outcome::kFail; }

  mutable std::mutex mutex_;
  int fail_at_ = 0;  // 0: never
  bool and_later_writes_ = false;
  Fault fault_ = Fault::kIoError;
  std::vector<std::string> log_;
};

}  // namespace trainyard::core
