// Locks a folder, so that one process at a time writes into it. The lock is on a file in the folder, whose text names
// the holder.
//
//   const core::LockFile lock("out/run1/run.lock");  // throws when another process holds it, and says which
//
// The lock is the operating system's (flock). It ends when its process ends, for any reason, and the next process can
// take it. Releasing the lock removes the file; a process that was killed leaves the file.
//
// Some network file systems have no such locks. There the text alone decides: a holder on this machine that no longer
// runs has lost the lock. A holder on another machine cannot be checked, so it keeps the lock until the file is removed
// by hand. Two processes that start at the same moment may then both get it.
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "trainyard/core/files/system_calls.h"

namespace trainyard::core {

class LockFile {
 public:
  // Makes the file in its folder, which must be there. Throws kInvalidArgument with the holder's host, process, start
  // and command when the lock is taken; kIo, kNoSpace or kNotFound when the file cannot be made or written.
  explicit LockFile(std::string path);
  // Does the same through the given system calls, which must outlive it.
  LockFile(std::string path, SystemCalls& system);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  // Opens the file and locks it. Returns false where the file system has no locks.
  bool lock();
  // Returns true when the file that is open is still the one that has the name.
  bool is_current() const;
  std::optional<std::string> read_current() const;
  void write_owner();
  void claim_by_text();
  void release();

  std::string path_;
  SystemCalls& system_;
  int descriptor_ = -1;
  std::string claimed_;  // the file's text, where it is the lock; empty: the descriptor holds it
  pid_t process_ = 0;    // process that took the lock; a forked child does not hold it
};

// Returns whether a process holds the lock of this path, which stays as it is: what LockFile would refuse. False for a
// file that a killed process has left. Throws kIo where the file cannot be read.
[[nodiscard]] bool is_lock_held(const std::string& path);
// Does the same through the given system calls.
[[nodiscard]] bool is_lock_held(const std::string& path, SystemCalls& system);

}  // namespace trainyard::core
