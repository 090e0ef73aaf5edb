// Creates a directory of files atomically.
#pragma once

#include <functional>
#include <string>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// Makes `directory`, which must not exist or must be empty, else throws kInvalidArgument. `fill` writes into a
// temporary directory next to it, which is renamed when `fill` returns and removed when it throws.
void make_new_directory(const std::string& directory, core::FileSystem& files,
                        const std::function<void(const std::string& unfinished)>& fill);

}  // namespace trainyard::data
