// Recognizes TensorFlow's checkpoints by their names, so that errors name them and no run writes next to them. They
// cannot be read.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

// Returns the names of the files in a directory that belong to a checkpoint or a SavedModel of TensorFlow, sorted:
// "checkpoint", "model.ckpt-1243.index", "model.ckpt-1243.data-00000-of-00001", "model.ckpt-1243.meta",
// "saved_model.pb". Returns none when the directory does not exist. Throws kIo.
[[nodiscard]] std::vector<std::string> tensorflow_checkpoint_files(const std::string& directory,
                                                                   core::FileSystem& files = core::local_file_system());

// Throws kUnsupported, with the names of the files, when `path` is a directory with such files, one of the files, or
// the path of a checkpoint in TensorFlow's sense: the part before ".index". Does nothing for any other path.
void refuse_tensorflow_checkpoint(const std::string& path, core::FileSystem& files = core::local_file_system());

}  // namespace trainyard::formats
