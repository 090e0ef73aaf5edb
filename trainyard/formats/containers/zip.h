// Reads the directory of zip archives whose members are stored without compression, as torch.save writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

struct ZipMember {
  std::string name;
  uint64_t offset = 0;  // of the first byte of data in the file
  uint64_t size = 0;    // bytes
};

// Returns true when the file begins as a zip archive does.
bool looks_like_zip(const core::ReadableFile& file);

// Returns the members in the order of the archive's directory, also of archives of more than 4 GiB (Zip64). Throws
// kCorruptData naming the file when there is no directory or a member is outside of the file; kUnsupported for
// compressed or encrypted members.
std::vector<ZipMember> read_zip_directory(const core::ReadableFile& file);

}  // namespace trainyard::formats
