#include "trainyard/data/codecs/bmp.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <fmt/core.h>

// Of its many formats this one alone: the others have better libraries.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_ASSERT(condition) static_cast<void>(0)  // for what the caller does, not for files
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

#include "trainyard/data/codecs/whole_image.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr uint32_t kOldHeader = 12;  // OS/2's, with 16-bit sizes
constexpr uint32_t kRunLengths8 = 1, kRunLengths4 = 2;
constexpr uint32_t kPlain = 0, kMasks = 3, kMasksWithAlpha = 6;

Error bmp_error(std::string_view why) {
  return {ErrorCode::kCorruptData, {.problem = fmt::format("BMP cannot be decoded: {}", why)}};
}

struct Header {
  ImageSize size;
  int64_t pixels_at = 0;  // bytes from the file's begin
  int64_t bits = 0;       // of a pixel
};

// Little endian; the caller has looked at the size.
uint32_t number(std::span<const std::byte> bytes, size_t at, int size) {
  uint32_t value = 0;
  for (int i = size - 1; i >= 0; --i)
    value = value << 8 | std::to_integer<uint32_t>(bytes[at + static_cast<size_t>(i)]);
  return value;
}

// stb_image takes what is behind a file's end for zeros, so the length is checked here.
core::Result<Header> read_header(std::span<const std::byte> bytes) {
  constexpr size_t kFileHeader = 14, kNewHeader = 40;
  if (bytes.size() < kFileHeader + kOldHeader) return bmp_error("it is truncated");
  const uint32_t header_bytes = number(bytes, kFileHeader, 4);
  const bool old = header_bytes == kOldHeader;
  if (!old && (header_bytes < kNewHeader || bytes.size() < kFileHeader + kNewHeader)) {
    return bmp_error("its header is of no known kind");
  }
  int64_t height = 0, width = 0;
  uint32_t compression = kPlain;
  Header header{.size = {}, .pixels_at = number(bytes, 10, 4)};
  if (old) {
    width = number(bytes, 18, 2);
    height = number(bytes, 20, 2);
    header.bits = number(bytes, 24, 2);
  } else {
    width = static_cast<int32_t>(number(bytes, 18, 4));
    height = std::abs(int64_t{static_cast<int32_t>(number(bytes, 22, 4))});  // negative: from the top down
    header.bits = number(bytes, 28, 2);
    compression = number(bytes, 30, 4);
  }
  if (compression == kRunLengths8 || compression == kRunLengths4) {
    return bmp_error("it is run-length coded, which is not read here: save it without compression");
  }
  if (compression != kPlain && compression != kMasks && compression != kMasksWithAlpha) {
    return bmp_error("it holds an image of another format");
  }
  constexpr int64_t kLongest = INT32_MAX / 4;
  if (width <= 0 || height <= 0 || width > kLongest || height > kLongest) return bmp_error("its size cannot be");
  if (header.bits != 1 && header.bits != 4 && header.bits != 8 && header.bits != 16 && header.bits != 24 &&
      header.bits != 32) {
    return bmp_error(fmt::format("{} bits a pixel", header.bits));
  }
  header.size = {static_cast<int>(height), static_cast<int>(width)};
  return header;
}

bool holds_all_rows(const Header& header, size_t bytes) {
  const int64_t row = (header.size.width * header.bits + 31) / 32 * 4;
  const int64_t last_row = (header.size.width * header.bits + 7) / 8;
  return header.pixels_at + row * (header.size.height - 1) + last_row <= static_cast<int64_t>(bytes);
}

core::Result<void> fill_pixels(std::span<const std::byte> bytes, const Header& header, uint8_t* pixels) {
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> decoded(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bytes.data()), static_cast<int>(bytes.size()), &width,
                            &height, &channels, 3),
      stbi_image_free);
  if (decoded == nullptr) {
    const char* reason = stbi_failure_reason();
    return bmp_error(reason == nullptr ? "it is damaged" : reason);
  }
  if (ImageSize{height, width} != header.size) return bmp_error("its size is not its header's");
  std::copy_n(decoded.get(), int64_t{3} * height * width, pixels);
  return {};
}

}  // namespace

core::Result<ImageSize> read_bmp_size(std::span<const std::byte> bytes, bool) {
  auto header = read_header(bytes);
  if (!header.ok()) return header.error();
  return header.value().size;
}

core::Result<Image> decode_bmp(std::span<const std::byte> bytes, const std::optional<CropWindow>& crop,
                               const DecodeOptions& options) {
  auto header = read_header(bytes);
  if (!header.ok()) return header.error();
  if (auto checked = check_size(header.value().size, options.limits); !checked.ok()) return checked.error();
  if (bytes.size() > INT32_MAX) return bmp_error("it is larger than 2 GiB");
  if (!holds_all_rows(header.value(), bytes.size())) return bmp_error("it is truncated");
  return decode_whole({header.value().size, 1}, crop, options.limits,
                      [&](uint8_t* pixels) { return fill_pixels(bytes, header.value(), pixels); });
}

}  // namespace trainyard::data
