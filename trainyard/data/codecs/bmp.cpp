#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <fmt/core.h>

#include "trainyard/data/codecs/optional_codecs.h"

// stb_image decodes only BMPs without a palette here: it leaves the missing colours of a short palette uninitialized,
// so that bytes of the stack would become pixels.
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

#include "trainyard/data/codecs/palette.h"
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

constexpr size_t kFileHeader = 14;
constexpr std::array<uint32_t, 7> kHeaders = {kOldHeader, 40, 52, 56, 64, 108, 124};

struct Header {
  ImageSize size;
  int64_t pixels_at = 0;  // bytes from the file's begin
  int64_t bits = 0;       // of a pixel
  bool top_down = false;
  // For images with at most 8 bits a pixel: offset of the palette, its number of colours, and bytes per colour.
  int64_t palette_at = 0, colours = 0, colour_bytes = 4;

  bool has_palette() const { return bits <= 8; }
  int64_t row_bytes() const { return (size.width * bits + 31) / 32 * 4; }
};

// Little endian; the caller has looked at the size.
uint32_t number(std::span<const std::byte> bytes, size_t at, int size) {
  uint32_t value = 0;
  for (int i = size - 1; i >= 0; --i)
    value = value << 8 | std::to_integer<uint32_t>(bytes[at + static_cast<size_t>(i)]);
  return value;
}

// Where the palette lies, as Pillow finds it: behind the header, of as many colours as the header says, or as the bits
// can tell apart. Pixels that would begin where the palette does begin behind it.
core::Result<Header> place_palette(Header header, uint32_t header_bytes) {
  constexpr int64_t kMostColours = 65536;
  if (header.colours > kMostColours) return bmp_error(fmt::format("a palette of {} colours", header.colours));
  if (header.colours == 0) header.colours = int64_t{1} << header.bits;
  header.colour_bytes = header_bytes == kOldHeader ? 3 : 4;
  header.palette_at = static_cast<int64_t>(kFileHeader) + header_bytes;
  if (header.pixels_at == 0 || header.pixels_at == header.palette_at) {
    header.pixels_at = header.palette_at + header.colours * header.colour_bytes;
  }
  return header;
}

// stb_image takes what is behind a file's end for zeros, so the length is checked here.
core::Result<Header> read_header(std::span<const std::byte> bytes) {
  constexpr size_t kNewHeader = 40;
  if (bytes.size() < kFileHeader + kOldHeader) return bmp_error("it is truncated");
  const uint32_t header_bytes = number(bytes, kFileHeader, 4);
  const bool old = header_bytes == kOldHeader;
  if (std::find(kHeaders.begin(), kHeaders.end(), header_bytes) == kHeaders.end()) {
    return bmp_error("its header is of no known kind");
  }
  if (!old && bytes.size() < kFileHeader + kNewHeader) return bmp_error("it is truncated");
  int64_t height = 0, width = 0;
  uint32_t compression = kPlain;
  Header header{.size = {}, .pixels_at = number(bytes, 10, 4)};
  if (old) {
    width = number(bytes, 18, 2);
    height = number(bytes, 20, 2);
    header.bits = number(bytes, 24, 2);
  } else {
    width = static_cast<int32_t>(number(bytes, 18, 4));
    height = static_cast<int32_t>(number(bytes, 22, 4));
    header.top_down = height < 0;
    height = std::abs(height);
    header.bits = number(bytes, 28, 2);
    compression = number(bytes, 30, 4);
    header.colours = number(bytes, 46, 4);
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
  if (header.has_palette()) {
    if (compression != kPlain) return bmp_error("it has masks and a palette");
    return place_palette(header, header_bytes);
  }
  return header;
}

bool holds_all_rows(const Header& header, size_t bytes) {
  const int64_t last_row = (header.size.width * header.bits + 7) / 8;
  return header.pixels_at + header.row_bytes() * (header.size.height - 1) + last_row <= static_cast<int64_t>(bytes);
}

Palette read_palette(std::span<const std::byte> bytes, const Header& header) {
  Palette palette{};
  size_t count = 0;
  for (const size_t most = std::min<size_t>(kPaletteColours, header.colours); count < most; ++count) {
    const size_t at = header.palette_at + count * header.colour_bytes;
    if (at + 3 > bytes.size()) break;
    const uint32_t colour = number(bytes, at, 3);
    palette[count] = {static_cast<uint8_t>(colour >> 16), static_cast<uint8_t>(colour >> 8),
                      static_cast<uint8_t>(colour)};
  }
  fill_rest(palette, count);
  return palette;
}

// The first index is in the top bits of a byte. The caller has looked at the size.
void fill_from_palette(std::span<const std::byte> bytes, const Header& header, uint8_t* pixels) {
  const Palette palette = read_palette(bytes, header);
  const auto mask = (1U << header.bits) - 1;
  for (int y = 0; y < header.size.height; ++y) {
    const int64_t row = header.top_down ? y : header.size.height - 1 - y;
    const auto line = bytes.subspan(static_cast<size_t>(header.pixels_at + row * header.row_bytes()));
    for (int64_t x = 0; x < header.size.width; ++x) {
      const int64_t bit = x * header.bits;
      const auto byte = std::to_integer<uint32_t>(line[static_cast<size_t>(bit / 8)]);
      pixels = std::copy_n(palette[byte >> (8 - header.bits - bit % 8) & mask].data(), 3, pixels);
    }
  }
}

core::Result<void> fill_pixels(std::span<const std::byte> bytes, const Header& header, uint8_t* pixels) {
  if (header.has_palette()) {
    fill_from_palette(bytes, header, pixels);
    return {};
  }
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
