// Handles a run directory that already contains a run, before a new one begins.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/threads/stop_token.h"

namespace trainyard::train {

enum class ExistingRun {
  kKeep,     // the new run continues from its newest checkpoint
  kBackUp,   // the directory is renamed, "run.backup-20260131-235959"
  kDelete,   // the files of the run are deleted
  kNewName,  // the new run gets a directory next to it, "run-2"
};

// Parses a value of --existing_run: "keep", "back_up", "delete", "new_name". Returns nothing for any other text
// ("ask").
std::optional<ExistingRun> parse_existing_run(std::string_view text);

// Returns true when the directory holds a checkpoint or another file that a training writes there.
[[nodiscard]] bool holds_run(const std::string& directory, core::FileSystem& files = core::local_file_system());

// Throws kInvalidArgument when a file that a training writes there is a symbolic link, a pipe, a device or a directory,
// before anything is written and hours of training are lost.
void require_plain_run_files(const std::string& directory);

// Applies `existing` if the directory contains a run, and returns the directory for the new run. It is a full path
// where "." or ".." is backed up or gets a new name. Other directories are not changed. Logs what it has done. Throws
// kInvalidArgument when another process trains there (not for kKeep and kNewName), and for kDelete, before anything is
// deleted, when the directory also contains files that no training writes; kIo. `now` is in seconds since the Unix
// epoch, for the name of a backup, which is in UTC.
std::string settle_existing_run(const std::string& directory, ExistingRun existing, double now,
                                core::FileSystem& files = core::local_file_system());

// Makes a new folder for a run in `parent`, which is created if needed, and returns its path: "runs/resnet18-3" when
// the highest number there is 2. '/' in the name becomes '-'. Several processes at the same time get different folders.
// Throws kIo with a remedy.
std::string make_new_run_directory(const std::string& parent, const std::string& name,
                                   core::FileSystem& files = core::local_file_system());

// Returns true when standard input and output are terminals, so that the user can be asked.
[[nodiscard]] bool can_ask();

// Asks on the terminal, by one key without Enter: k, b, d or, if it is offered, n. Throws kCancelled for q, the end of
// the input, and when `stop` is requested meanwhile.
ExistingRun ask_existing_run(const std::string& directory, std::ostream& out, const core::StopToken& stop,
                             bool offers_new_name = true);

}  // namespace trainyard::train
