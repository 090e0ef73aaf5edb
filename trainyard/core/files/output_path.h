// Decides which files may be written. Two rules:
//
//   - A file that the program names itself (metrics.csv, run.lock, a checkpoint's temporary file, a cache) must be a
//     plain file or not be there. FileSystem's open_write and open_append, and LockFile, refuse a symbolic link, a pipe
//     and a device of that name: whoever may write into the folder could else have any file of the user overwritten, or
//     a run hang.
//   - A path that the user has typed (--output=FILE) leads where it leads: a symbolic link is followed, a pipe or a
//     device, such as /dev/stdout, is written to.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::core {

// What a path names. Links are not followed.
enum class OutputKind { kNothing, kPlainFile, kDirectory, kLink, kPipeOrDevice };

// Returns the error for a path that the program chose and that is not a plain file.
[[nodiscard]] Error not_a_plain_file(const std::string& path, OutputKind kind);
// Returns what `path` is. Throws kIo when that cannot be determined.
[[nodiscard]] OutputKind output_kind(const std::string& path);
// Throws kInvalidArgument unless `path` is a plain file or does not exist.
void require_plain_output(const std::string& path);

// A path that a user has typed.
struct UserOutput {
  std::string path;        // with the links of its last part followed
  bool is_stream = false;  // a pipe or a device, or a descriptor of this process (/dev/stdout): it cannot be replaced
};
// Follows the links. Throws kInvalidArgument for links in a circle, kIo for a directory.
[[nodiscard]] UserOutput resolve_user_output(const std::string& path);
// Writes the whole file: under a temporary name that is renamed, as FileSystem::write_file_atomically does, and
// straight into a stream. A link stays a link.
void write_user_output(const std::string& path, std::string_view content, FileSystem& files = local_file_system());
// Opens a stream for writing. Throws kIo for a pipe without a reader.
[[nodiscard]] std::unique_ptr<WritableFile> open_stream(const std::string& path);

}  // namespace trainyard::core
