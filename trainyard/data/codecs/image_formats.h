// The formats of image files that are read: the one list that decoding, the search for images in folders and archives,
// and messages go by.
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

// JPEG first. Those that this build lacks are in it, too.
const std::vector<ImageFormat>& image_formats();

// The one whose first bytes these are; null for none.
const ImageFormat* image_format_of(std::span<const std::byte> bytes);
// The extension of what begins with these bytes, "jpg" where that is unknown.
std::string_view image_extension_of(std::span<const std::byte> bytes);
// Whether "jpg", in lower case, is the extension of one.
bool is_image_extension(std::string_view extension);

// "JPEG, PNG, WebP, GIF, BMP or TIFF", ".jpg, .jpeg, ... or .tiff": for messages.
std::string image_format_names();
std::string image_extension_names();

}  // namespace trainyard::data
