// Detects damaged checkpoints. A directory gets the name of a checkpoint only when it is complete: one with such a name
// that cannot be read was damaged afterwards, or is being replaced by a running training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::train {

// Checks the name, the manifest and the tensor file's length; a tensor's checksum is verified when it is read. Returns
// kCorruptData for damage, kNotFound when the checkpoint does not exist or was removed meanwhile, and nothing when it
// is intact or of an unknown version, which loading reports. Throws kIo.
std::optional<core::Error> checkpoint_problem(const std::string& path, core::FileSystem& files);

// Returns the damage, and nothing when the checkpoint is intact or was removed.
std::optional<core::Error> find_damage(const std::string& path, core::FileSystem& files);

// Runs `work`, which reads the checkpoint at `path`, and returns its error if that is kNotFound or kCorruptData.
// Returns kNotFound for any error when the checkpoint was removed or replaced meanwhile. Throws other errors.
template <typename Work>
std::optional<core::Error> reading_error(const std::string& path, core::FileSystem& files, Work work);

// Returns the identity of the directory that has the name now, and nothing when there is none.
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
