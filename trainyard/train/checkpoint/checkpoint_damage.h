// Whether a checkpoint is damaged. A directory gets the name of a checkpoint only when it is complete: one that has the
// name and cannot be read was damaged afterwards, or is being replaced by a training that runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::train {

// Looks at the name, the manifest and the tensor file's length; a tensor's bytes are compared with their checksum when
// it is read. Returns kCorruptData for damage, kNotFound when the checkpoint is not there or went away meanwhile, and
// nothing when it is intact or of a version that this release does not know: loading it says so. Throws kIo.
std::optional<core::Error> checkpoint_problem(const std::string& path, core::FileSystem& files);

// Returns the damage alone, and nothing when the checkpoint is intact or went away.
std::optional<core::Error> find_damage(const std::string& path, core::FileSystem& files);

// Does `work`, which reads the checkpoint at `path`, and returns its error if that is kNotFound or kCorruptData. The
// error counts as kNotFound, whatever it is, when the checkpoint went away or was replaced meanwhile. Throws other
// errors.
template <typename Work>
std::optional<core::Error> reading_error(const std::string& path, core::FileSystem& files, Work work);

// Returns which directory bears the name now, and nothing where there is none.
std::optional<uint64_t> directory_id(const std::string& path, core::FileSystem& files);

template <typename Work>
std::optional<core::Error> reading_error(const std::string& path, core::FileSystem& files, Work work) {
  const std::optional<uint64_t> before = directory_id(path, files);
  try {
    work();
    return std::nullopt;
  } catch (const core::Error& error) {
    if (error.code() != core::ErrorCode::kNotFound && error.code() != core::ErrorCode::kCorruptData) throw;
    const std::optional<uint64_t> after = directory_id(path, files);
    if (before && before == after) return error;
    return core::Error(
        core::ErrorCode::kNotFound,
        {.problem = "the checkpoint went away while it was read", .where = path, .remedy = "read the newest one"});
  }
}

}  // namespace trainyard::train
