// A folder that one process at a time may write into: a lock on a file in it, whose text says who holds it.
//
//   const core::LockFile lock("out/run1/run.lock");  // throws when another process holds it, and says which
//
// The lock is the operating system's (flock): it ends with its process, however that ends, and then the next one takes
// it over. The file goes away with a lock that is given back, and stays behind a process that was killed. On file
// systems without such locks (some networks') the text alone decides: a process of this machine that is gone has lost
// the lock; of a process of another machine nothing is known, so it keeps it until somebody removes the file. Two
// processes that start at the same moment may then both get it.
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
  // Opens the file and locks it; false where the file system has no locks.
  bool lock();
  // Whether the file that is open is the one that has the name.
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
