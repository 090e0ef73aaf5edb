#include "trainyard/train/session/run_lock.h"

#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/tensors/tensorflow_checkpoint.h"
#include "trainyard/train/session/run_directory.h"

namespace trainyard::train {
namespace {

// Returns the lock's path in a directory that is there and can be written.
std::string lock_path(const std::string& directory) {
  formats::refuse_tensorflow_checkpoint(directory);
  core::local_file_system().make_directories(directory);
  require_plain_run_files(directory);
  return core::join_path(directory, kRunLock);
}

}  // namespace

RunLock::RunLock(const std::string& directory) : file_(lock_path(directory)) {}

}  // namespace trainyard::train
