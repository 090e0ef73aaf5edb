// A decoded image, a view of a part of one, and limits of decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/data/base/pooled_vector.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

struct ImageSize {
  int height = 0, width = 0;  // pixels
  bool operator==(const ImageSize&) const = default;
};

// Rows [y, y + height) and columns [x, x + width).
struct CropWindow {
  int y = 0, x = 0, height = 0, width = 0;  // pixels
  bool operator==(const CropWindow&) const = default;
};

struct Image {
  int height = 0, width = 0;
  PooledVector<uint8_t> pixels{};  // [height, width, 3] RGB
};

// Pixels of an image or of a part of one, whose owner must outlive it.
struct ImageView {
  int height = 0, width = 0;
  const uint8_t* pixels = nullptr;  // [height, width, 3] RGB
  ptrdiff_t stride = 0;             // bytes from row to row

  ImageView() = default;
  ImageView(const Image& image)  // NOLINT(google-explicit-constructor): an image is the view of all of it
      : height(image.height), width(image.width), pixels(image.pixels.data()), stride(ptrdiff_t{3} * image.width) {}
  // Returns the part `crop`, which must be inside.
  [[nodiscard]] ImageView part(const CropWindow& crop) const;
};

// Limits of decoding. Image files are not trusted: their size is checked before any memory is allocated for pixels.
struct DecodeLimits {
  int64_t max_pixels = 178'956'970;  // height x width of the whole image; 512 MiB as RGB
  // Called with the bytes of the pixels before they are allocated. It refuses by throwing.
  std::function<void(int64_t bytes)> before_allocation{};
};

// How an image file is decoded.
struct DecodeOptions {
  DecodeLimits limits{};
  // JPEG: rotates the image as its EXIF data say. Sizes and windows are then those of the rotated image.
  bool exif_orientation = false;
  // JPEG: decodes at 1/2, 1/4 or 1/8 of the size, by a smaller inverse DCT, as long as the window does not become
  // smaller than this; {0, 0} means at full size. With 1 / n, the result holds the window's rows and columns from
  // floor(begin / n) to ceil(end / n), of the image of size ceil(height / n) x ceil(width / n).
  ImageSize at_least{};
};

// Returns a copy of the pixels.
[[nodiscard]] Image copy_of(const ImageView& view);

// Returns kCorruptData "image too large" when the image has more pixels than the limit.
core::Result<void> check_size(ImageSize size, const DecodeLimits& limits);
// Returns kCorruptData when the window is empty or not inside an image of this size.
core::Result<void> check_inside(const CropWindow& crop, ImageSize size);

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
