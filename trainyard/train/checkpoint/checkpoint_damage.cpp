#include "trainyard/train/checkpoint/checkpoint_damage.h"

#include "trainyard/train/checkpoint/checkpoint_reader.h"

namespace trainyard::train {
namespace {

// Throws kCorruptData when the checkpoint cannot be complete, kNotFound when there is none.
void look_at(const std::string& path, core::FileSystem& files) {
  if (!files.info(path).is_directory) {
    throw damaged_checkpoint("a file has the name of a checkpoint", path, "a directory", "a file");
  }
  try {
    require_tensor_file(read_manifest(path, files), path, files);
  } catch (const core::Error& error) {
    if (error.code() != core::ErrorCode::kUnsupported) throw;  // of another version: loading it will say so
  }
}

}  // namespace

std::optional<core::Error> checkpoint_problem(const std::string& path, core::FileSystem& files) {
  return reading_error(path, files, [&] { look_at(path, files); });
}

std::optional<core::Error> find_damage(const std::string& path, core::FileSystem& files) {
  const std::optional<core::Error> error = checkpoint_problem(path, files);
  return error && error->code() == core::ErrorCode::kCorruptData ? error : std::nullopt;
}

std::optional<uint64_t> directory_id(const std::string& path, core::FileSystem& files) {
  try {
    return files.info(path).file_id;
  } catch (const core::Error& error) {
    if (error.code() != core::ErrorCode::kNotFound) throw;
    return std::nullopt;
  }
}

}  // namespace trainyard::train
