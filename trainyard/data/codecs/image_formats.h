// Lists the image formats that are read. Decoding, the search for images in folders and archives, and messages all use
// this list.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

struct ImageFormat {
  std::string_view name;                     // "WebP"
  std::vector<std::string_view> extensions;  // in lower case, the usual one first
  std::string_view package;  // Debian package that a build needs to read it; empty: every build reads it
  bool (*matches)(std::span<const std::byte> bytes);
  // Null in a build that cannot read the format.
  core::Result<ImageSize> (*read_size)(std::span<const std::byte> bytes, bool exif_orientation) = nullptr;
  core::Result<Image> (*decode)(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                                const DecodeOptions& options) = nullptr;
  // Returns EXIF's orientation, 1 to 8. Null where images of the format are never turned.
  int (*read_orientation)(std::span<const std::byte> bytes) = nullptr;

  bool built_in() const { return decode != nullptr; }
};

// Returns all formats, JPEG first, including those that this build cannot read.
const std::vector<ImageFormat>& image_formats();

// Returns the format whose files begin with these bytes, or null.
const ImageFormat* image_format_of(std::span<const std::byte> bytes);
// Returns the extension of a file that begins with these bytes, and "jpg" where the format is unknown.
std::string_view image_extension_of(std::span<const std::byte> bytes);
// Returns true when `extension`, in lower case and without a dot ("jpg"), is that of a format.
bool is_image_extension(std::string_view extension);

// Return "JPEG, PNG, WebP, GIF, BMP or TIFF" and ".jpg, .jpeg, ... or .tiff", for messages.
std::string image_format_names();
std::string image_extension_names();

}  // namespace trainyard::data
