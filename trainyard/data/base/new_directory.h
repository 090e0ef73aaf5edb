// Creates a directory of files as a whole.
#pragma once

#include <functional>
#include <string>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// Makes `directory`, which must not exist or must be empty. `fill` writes into a temporary directory, which is removed
// when it throws:
//
//   DIR.unfinished   where there is no DIR. It is renamed to DIR, which so appears atomically.
//   DIR/.unfinished  where DIR exists, because DIR may be a link, a mount point, or in a directory that cannot be
//                    written. Its entries are moved up one by one, and require_finished() refuses DIR until all are. A
//                    process that is killed within this moment leaves a DIR that stays refused, and is not empty.
//
// One process at a time may make a directory (core/files/lock_file.h). Throws kInvalidArgument when another one does,
// or when `directory` is something else than an empty directory.
void make_new_directory(const std::string& directory, core::FileSystem& files,
                        const std::function<void(const std::string& unfinished)>& fill);

// Throws kCorruptData when a make_new_directory() of `directory`, which exists, still runs or was killed.
void require_finished(core::FileSystem& files, const std::string& directory);

}  // namespace trainyard::data
