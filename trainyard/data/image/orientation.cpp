#include "trainyard/data/image/orientation.h"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "trainyard/core/base/log.h"

namespace trainyard::data {
namespace {

constexpr char kExif[] = "Exif\0";  // and one more zero, which ends the literal
constexpr size_t kExifBytes = 6;
constexpr uint16_t kOrientationTag = 0x0112, kShort = 3;
constexpr size_t kExifEntryBytes = 12;

// TIFF's numbers, in the byte order that it names first. 0 behind the end.
struct Tiff {
  std::span<const std::byte> bytes;
  bool big_endian = false;

  uint32_t number(size_t offset, size_t size) const {
    if (offset > bytes.size() || bytes.size() - offset < size) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      const size_t place = big_endian ? i : size - 1 - i;
      value = value << 8 | std::to_integer<uint32_t>(bytes[offset + place]);
    }
    return value;
  }
};

bool swaps_axes(int orientation) {
  return orientation >= 5;
}
bool flips_rows(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}
bool flips_columns(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

}  // namespace

int exif_orientation(std::span<const std::byte> app1) {
  if (app1.size() < kExifBytes || std::memcmp(app1.data(), kExif, kExifBytes) != 0) return 1;
  return tiff_orientation(app1);
}

int tiff_orientation(std::span<const std::byte> bytes) {
  const bool headed = bytes.size() >= kExifBytes && std::memcmp(bytes.data(), kExif, kExifBytes) == 0;
  Tiff tiff{headed ? bytes.subspan(kExifBytes) : bytes};
  if (tiff.bytes.size() < 8) return 1;
  tiff.big_endian = tiff.bytes[0] == std::byte{'M'};
  if (tiff.number(2, 2) != 42) return 1;
  const size_t directory = tiff.number(4, 4);
  const size_t entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kExifEntryBytes;
    if (tiff.number(entry, 2) != kOrientationTag || tiff.number(entry + 2, 2) != kShort) continue;
    const auto orientation = static_cast<int>(tiff.number(entry + 8, 2));
    return orientation >= 1 && orientation <= 8 ? orientation : 1;
  }
  return 1;
}

ImageSize oriented_size(ImageSize stored, int orientation) {
  return swaps_axes(orientation) ? ImageSize{stored.width, stored.height} : stored;
}

CropWindow stored_window(const CropWindow& window, int orientation, ImageSize stored) {
  CropWindow result = window;
  if (swaps_axes(orientation)) {
    std::swap(result.y, result.x);
    std::swap(result.height, result.width);
  }
  if (flips_rows(orientation)) result.y = stored.height - result.y - result.height;
  if (flips_columns(orientation)) result.x = stored.width - result.x - result.width;
  return result;
}

ImagePoint oriented_point(ImagePoint stored, int orientation) {
  const float y = flips_rows(orientation) ? 1 - stored.y : stored.y;
  const float x = flips_columns(orientation) ? 1 - stored.x : stored.x;
  return swaps_axes(orientation) ? ImagePoint{x, y} : ImagePoint{y, x};
}

Image oriented(const Image& stored, int orientation) {
  static std::once_flag said;
  std::call_once(said, [] {
    core::log::info(
        "images are turned as their EXIF data say, as viewers show them; --noexif_orientation leaves them as they are "
        "stored");
  });
  const ImageSize size = oriented_size({stored.height, stored.width}, orientation);
  Image image{.height = size.height, .width = size.width};
  image.pixels.resize(stored.pixels.size());
  uint8_t* target = image.pixels.data();
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x, target += 3) {
      int row = swaps_axes(orientation) ? x : y;
      int column = swaps_axes(orientation) ? y : x;
      if (flips_rows(orientation)) row = stored.height - 1 - row;
      if (flips_columns(orientation)) column = stored.width - 1 - column;
      std::memcpy(target, stored.pixels.data() + 3 * (static_cast<ptrdiff_t>(row) * stored.width + column), 3);
    }
  }
  return image;
}

}  // namespace trainyard::data
