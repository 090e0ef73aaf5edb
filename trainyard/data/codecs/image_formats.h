// The formats of image files that are read. This one list serves decoding, the search for images in folders and
// archives, and messages.
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
  std::string_view package;                  // of Debian, that a build needs to read it; empty: every build does
  bool (*matches)(std::span<const std::byte> bytes);
  // Null in a build that cannot read it.
  core::Result<ImageSize> (*read_size)(std::span<const std::byte> bytes, bool exif_orientation) = nullptr;
  core::Result<Image> (*decode)(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                                const DecodeOptions& options) = nullptr;

  bool built_in() const { return decode != nullptr; }
};

// Returns all formats, JPEG first, those that this build cannot read among them.
const std::vector<ImageFormat>& image_formats();

// Returns the format whose files begin with these bytes; null for none.
const ImageFormat* image_format_of(std::span<const std::byte> bytes);
// Returns the extension of a file that begins with these bytes, and "jpg" where the format is unknown.
std::string_view image_extension_of(std::span<const std::byte> bytes);
// Returns true when `extension`, in lower case and without a dot ("jpg"), is that of a format.
bool is_image_extension(std::string_view extension);

// Return "JPEG, PNG, WebP, GIF, BMP or TIFF" and ".jpg, .jpeg, ... or .tiff", for messages.
std::string image_format_names();
std::string image_extension_names();

}  // namespace trainyard::data
