// What data look like from outside, for processes that must all read the same: names and sizes of files. Times and the
// folder that holds them may differ between machines.
#pragma once

#include <string>

#include "trainyard/core/files/file_system.h"

namespace trainyard::frontends {

// Returns "12 files, 34567 bytes, 0123456789abcdef" of what `data` names: a folder, or shards by name. Folders of more
// than 100,000 files are looked at up to there, in the order of their names; the text then ends with ", and more".
// Links that lead nowhere are left out.
std::string data_digest(core::FileSystem& files, const std::string& data);

}  // namespace trainyard::frontends
