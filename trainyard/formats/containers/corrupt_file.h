// The error for bytes of a file that do not follow their format.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

// Returns kCorruptData that names the file and the offset in bytes at which the problem is.
inline core::Error corrupt_file(const core::ReadableFile& file, uint64_t offset, core::ErrorDetail detail) {
  detail.where = fmt::format("{} at offset {}", file.path(), offset);
  return {core::ErrorCode::kCorruptData, std::move(detail)};
}

}  // namespace trainyard::formats
