// Finds images in folders and archives, by their names. Their first bytes decide the format (codecs/decode.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// Returns true when the name has an extension of image_formats.h, in capital or small letters.
bool is_image_name(std::string_view name);

// Returns the paths of all images in `directory` and the folders below it, by name: those of a folder first, then those
// of its folders. Skips names that begin with a dot. Throws kInvalidArgument where folders nest too deep, kIo.
std::vector<std::string> images_below(core::FileSystem& files, const std::string& directory);

}  // namespace trainyard::data
