#include "trainyard/data/codecs/decode.h"

#include <algorithm>
#include <string>

#include <fmt/core.h>

#include "trainyard/data/base/stage_times.h"
#include "trainyard/data/codecs/image_formats.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

// The format of the file; an error where it has none, or one that this build cannot read.
core::Result<const ImageFormat*> format_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return Error(ErrorCode::kCorruptData,
                 {.problem = "image is empty", .expected = image_format_names(), .actual = "0 bytes"});
  }
  const ImageFormat* format = image_format_of(bytes);
  if (format == nullptr) {
    std::string first;
    for (std::byte b : bytes.first(std::min<size_t>(bytes.size(), 4)))
      first += fmt::format("{:02x} ", static_cast<int>(b));
    first.pop_back();
    return Error(ErrorCode::kCorruptData, {.problem = "image is of no known format",
                                           .expected = image_format_names(),
                                           .actual = fmt::format("a file that begins with {}", first)});
  }
  if (!format->built_in()) {
    return Error(ErrorCode::kUnsupported, {.problem = fmt::format("this build has no {}", format->name),
                                           .remedy = fmt::format("install {} and build again", format->package)});
  }
  return format;
}

}  // namespace

core::Result<ImageSize> read_image_size(std::span<const std::byte> bytes, bool exif_orientation) {
  auto format = format_of(bytes);
  if (!format.ok()) return format.error();
  return format.value()->read_size(bytes, exif_orientation);
}

int read_image_orientation(std::span<const std::byte> bytes) {
  const ImageFormat* const format = image_format_of(bytes);
  return format != nullptr && format->read_orientation != nullptr ? format->read_orientation(bytes) : 1;
}

core::Result<Image> decode_image(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                                 const DecodeOptions& options) {
  const StageTimer timer(Stage::kDecode);
  auto format = format_of(bytes);
  if (!format.ok()) return format.error();
  return format.value()->decode(bytes, crop, options);
}

}  // namespace trainyard::data
