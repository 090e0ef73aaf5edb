// Finds images in folders and archives, by their names. Their first bytes decide the format (codecs/decode.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// Returns true when the name has an extension of image_formats.h, in capital or small letters.
bool is_image_name(std::string_view name);

// Returns the bytes of an image file; kCorruptData for one above 256 MiB. Throws errors of the operating system: a file
// that has been removed since the start is not a bad sample.
[[nodiscard]] core::Result<std::vector<std::byte>> read_image_file(core::FileSystem& files, const std::string& path);

// Returns the paths of all images in `directory` and the folders below it, by name: those of a folder first, then those
// of its folders. Skips names that begin with a dot. Throws kInvalidArgument where folders nest too deep, kIo.
std::vector<std::string> images_below(core::FileSystem& files, const std::string& directory);

}  // namespace trainyard::data
