#include "trainyard/data/decode.h"

#include <algorithm>
#include <string>

#include <fmt/core.h>

#include "trainyard/data/jpeg.h"
#include "trainyard/data/png.h"
#include "trainyard/data/stage_times.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

enum class Kind { kJpeg, kPng };

bool starts_with(std::span<const std::byte> bytes, std::initializer_list<uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin(),
                                                    [](uint8_t a, std::byte b) { return std::byte{a} == b; });
}

core::Result<Kind> kind_of(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return Error(ErrorCode::kCorruptData,
                 {.problem = "image is empty", .expected = "a JPEG or PNG", .actual = "0 bytes"});
  }
  if (starts_with(bytes, {0xff, 0xd8})) return Kind::kJpeg;
  if (starts_with(bytes, {0x89, 'P', 'N', 'G'})) return Kind::kPng;
  std::string first;
  for (std::byte b : bytes.first(std::min<size_t>(bytes.size(), 4)))
    first += fmt::format("{:02x} ", static_cast<int>(b));
  first.pop_back();
  return Error(ErrorCode::kCorruptData,
               {.problem = "image is neither JPEG nor PNG", .expected = "ff d8 or 89 50 4e 47 first", .actual = first});
}

}  // namespace

core::Result<ImageSize> read_image_size(std::span<const std::byte> bytes, bool exif_orientation) {
  auto kind = kind_of(bytes);
  if (!kind.ok()) return kind.error();
  return kind.value() == Kind::kJpeg ? read_jpeg_size(bytes, exif_orientation) : read_png_size(bytes);
}

core::Result<Image> decode_image(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                                 const DecodeOptions& options) {
  const StageTimer timer(Stage::kDecode);
  auto kind = kind_of(bytes);
  if (!kind.ok()) return kind.error();
  return kind.value() == Kind::kJpeg ? decode_jpeg(bytes, crop, options) : decode_png(bytes, crop, options.limits);
}

}  // namespace trainyard::data
