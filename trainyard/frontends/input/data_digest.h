// A digest of the names and sizes of data files, with which processes check that they read the same data. Times and
// folders may differ between machines.
#pragma once

#include <string>

#include "trainyard/core/files/file_system.h"

namespace trainyard::frontends {

// Returns "12 files, 34567 bytes, 0123456789abcdef" of the folder or the shards that `data` names. Only the first
// 100,000 files of a folder are counted, in the order of their names; the text then ends with ", and more". Dangling
// links are ignored, and those that lead back to a folder that they lie in. Throws kInvalidArgument where folders nest
// too deep.
std::string data_digest(core::FileSystem& files, const std::string& data);

}  // namespace trainyard::frontends
