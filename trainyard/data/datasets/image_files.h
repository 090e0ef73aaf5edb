// Which files are taken for images when a folder or an archive is looked through. What is in them is said by their
// first bytes (codecs/decode.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/files/file_system.h"

namespace trainyard::data {

// Returns true when the name ends as those of images do (codecs/image_formats.h), in capital or small letters.
bool is_image_name(std::string_view name);

// Returns the paths of all images in `directory` and the folders below it, by name: those of a folder first, then those
// of its folders. Names that begin with a dot are passed over. Throws kInvalidArgument where folders nest too deep,
// kIo.
std::vector<std::string> images_below(core::FileSystem& files, const std::string& directory);

}  // namespace trainyard::data
