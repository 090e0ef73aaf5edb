// A folder that one process at a time may write into: a lock on a file in it, whose text says who holds it.
//
//   const core::LockFile lock("out/run1/run.lock");  // throws when another process holds it, and says which
//
// The lock is the operating system's (flock). It ends with its process, however that ends, and the next process can
// take it. The file goes away when the lock is given back, and stays behind a process that was killed.
//
// Some file systems (those of some networks) have no such locks. There the text alone decides: a process of this
// machine that is gone has lost the lock. Of a process of another machine nothing is known, so it keeps the lock until
// somebody removes the file. Two processes that start at the same moment may then both get it.
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
  // The same through the given system calls, which must outlive it.
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
  pid_t process_ = 0;  // that took it: a child that was forked has no part in it
};

}  // namespace trainyard::core
