// The lock of a run's directory: one process at a time writes there.
#pragma once

#include <string>

#include "trainyard/core/files/lock_file.h"

namespace trainyard::train {

inline constexpr const char* kRunLock = "run.lock";  // the name of the lock in the directory

// Holds "<directory>/run.lock" as long as it lives. Let it outlive all that writes into the directory.
class RunLock {
 public:
  // Makes the directory and takes its lock. Throws kInvalidArgument where another run has it and where a file that a
  // training writes there is none that it can write (require_plain_run_files()), kUnsupported for a directory that
  // holds a checkpoint of TensorFlow.
  explicit RunLock(const std::string& directory);

 private:
  core::LockFile file_;
};

}  // namespace trainyard::train
