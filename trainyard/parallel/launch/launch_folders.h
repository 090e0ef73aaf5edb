// The folders that a launch makes for mpirun and its ranks: trainyard-launch-PID-XXXXXX in the folder of temporary
// files and on /dev/shm. The keeper removes them at the end. When launch and keeper were killed together, the next
// launch of the same user removes them.
//
// A folder is in use as long as a process holds a lock (flock) on the file `owner` in it: the lock ends with its
// process, however that ends, so a process id that has been reused does not matter. It also works between containers,
// which have their own process ids and may share a folder.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "trainyard/core/sockets/socket.h"

namespace trainyard::parallel {

// Returns the folder of temporary files, which TMPDIR names, or /tmp. Throws kIo unless it is a folder.
std::string temporary_folder();

// Makes a folder that only this user may enter. Throws kIo.
std::string make_launch_folder(const std::string& base);

// Marks the folder as in use, as long as the result lives. Several processes may do so. The result is not valid when
// the file cannot be made.
[[nodiscard]] core::Socket hold_launch_folder(const std::string& folder);

// Removes the folders in `base` that this user's launches have left and that no process holds any more, and returns
// their paths. Links, files, and folders of other users are kept. A folder without the file `owner` was made by an
// older release, or is just being made: it is kept as long as the process in its name lives, unless that process has
// begun after it.
std::vector<std::string> remove_abandoned_folders(const std::string& base);

}  // namespace trainyard::parallel
