// Reads sorted string tables, LevelDB's format of a file of keys and values, in which TensorFlow writes the index of a
// checkpoint (docs/formats/tensorflow_checkpoint.md).
#pragma once

#include <functional>
#include <string_view>

#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

// Longest key that is read: keys share beginnings, so a small file could otherwise claim very many bytes of them.
inline constexpr size_t kMaxSstableKeyBytes = 4096;

// Calls `entry` for each key with its value, in their order; both are valid during the call. Verifies the checksum of
// each block before it is used. Throws kCorruptData with the file and the offset: for blocks that overlap or lie
// outside of the file, checksums that differ, keys that are out of order or too long, and values that are cut.
void read_sstable(const core::ReadableFile& file,
                  const std::function<void(std::string_view key, std::string_view value)>& entry);

}  // namespace trainyard::formats
