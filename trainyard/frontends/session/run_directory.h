// A run directory that already holds a run: what becomes of that run before a new one begins.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "trainyard/core/base/export.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/core/threads/stop_token.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

enum class ExistingRun {
  kKeep,     // the new run goes on from its newest checkpoint
  kBackUp,   // the directory is renamed, "run.backup-20260131-235959"
  kDelete,   // what the run has written is deleted
  kNewName,  // the new run gets a directory beside it, "run-2"
};

// Reads a value of --existing_run: "keep", "back_up", "delete", "new_name", and for any other text nothing ("ask").
std::optional<ExistingRun> parse_existing_run(std::string_view text);

// Returns true when the directory holds a checkpoint or another file that a training writes there.
[[nodiscard]] bool holds_run(const std::string& directory, core::FileSystem& files = core::local_file_system());

// Throws kInvalidArgument where a file that a training writes there is a symbolic link, a pipe, a device or a
// directory, before anything is written: after hours of training would be late.
void require_plain_run_files(const std::string& directory);

// Does as `existing` says where the directory holds a run, and returns the directory for the new run. Other directories
// are left as they are. Says in the log what it has done. Throws kInvalidArgument when another process trains there
// (not for kKeep and kNewName), and for kDelete, before anything is deleted, when the directory also holds what no
// training writes; kIo. `now`: seconds since the Unix epoch, for the name of a backup, which is in UTC.
std::string settle_existing_run(const std::string& directory, ExistingRun existing, double now,
                                core::FileSystem& files = core::local_file_system());

// Makes a new folder for a run in `parent`, which is made, too, and returns its path: "runs/resnet18-3" where the
// highest number there is 2. '/' in the name becomes '-'. Of several processes at the same time each gets one of its
// own. Throws kIo with what to do.
std::string make_new_run_directory(const std::string& parent, const std::string& name,
                                   core::FileSystem& files = core::local_file_system());

// Returns true when standard input and output are terminals, on which somebody can be asked.
[[nodiscard]] bool can_ask();

// Asks on the terminal, by one key without Enter: k, b, d or n. Throws kCancelled for q, the end of the input, and when
// `stop` is asked for meanwhile.
ExistingRun ask_existing_run(const std::string& directory, std::ostream& out, const core::StopToken& stop);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
