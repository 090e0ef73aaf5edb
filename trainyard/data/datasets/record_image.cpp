#include "trainyard/data/datasets/record_image.h"

#include <algorithm>

#include <fmt/core.h>

#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/image/orientation.h"

namespace trainyard::data {
namespace {

// Planes to interleaved pixels.
core::Result<Image> raw_image(const Record& record) {
  Image image{.height = record.height, .width = record.width};
  const size_t plane = static_cast<size_t>(record.height) * record.width;
  if (record.bytes.size() != 3 * plane) {
    return core::Error(core::ErrorCode::kCorruptData, {.problem = "raw image has the wrong size",
                                                       .expected = fmt::format("{} bytes", 3 * plane),
                                                       .actual = fmt::format("{}", record.bytes.size())});
  }
  image.pixels.resize(3 * plane);
  for (size_t i = 0; i < plane; ++i) {
    for (size_t c = 0; c < 3; ++c) image.pixels[3 * i + c] = static_cast<uint8_t>(record.bytes[c * plane + i]);
  }
  return image;
}

// The place that a place outside of [0, count) mirrors, without repeating the edge.
int reflected(int place, int count) {
  if (place < 0) place = -place;
  return place < count ? place : 2 * (count - 1) - place;
}

}  // namespace

core::Result<ImageSize> record_image_size(const Record& record, bool exif_orientation) {
  if (record.encoding == Encoding::kDecoded) return ImageSize{record.image->height, record.image->width};
  if (record.encoding == Encoding::kRawChw) return ImageSize{record.height, record.width};
  auto size = read_image_size(record.bytes, exif_orientation);
  if (!size.ok()) return size.error().in(record.where);
  return size;
}

core::Result<RecordImage> record_image(const Record& record, const std::optional<CropWindow>& crop,
                                       const DecodeOptions& options) {
  std::shared_ptr<const Image> image = record.image;
  const bool whole = record.encoding == Encoding::kDecoded || record.encoding == Encoding::kRawChw;
  if (record.encoding != Encoding::kDecoded) {
    auto decoded = whole ? raw_image(record) : decode_image(record.bytes, crop, options);
    if (!decoded.ok()) return decoded.error().in(record.where);
    image = std::make_shared<const Image>(std::move(decoded).value());
  }
  const ImageView pixels = *image;
  return RecordImage{image, whole && crop ? pixels.part(*crop) : pixels};
}

std::vector<Box> record_boxes(const Record& record, bool exif_orientation) {
  std::vector<Box> boxes = record.boxes;
  const bool stored = record.encoding != Encoding::kDecoded && record.encoding != Encoding::kRawChw;
  if (boxes.empty() || !stored || !exif_orientation) return boxes;
  const int orientation = read_image_orientation(record.bytes);
  for (Box& box : boxes) {
    const ImagePoint a = oriented_point({box.ymin, box.xmin}, orientation);
    const ImagePoint b = oriented_point({box.ymax, box.xmax}, orientation);
    box = {std::min(a.y, b.y), std::min(a.x, b.x), std::max(a.y, b.y), std::max(a.x, b.x)};
  }
  return boxes;
}

int centred_start(int size, int target) {
  const int difference = target - size;
  return difference >= 0 ? -(difference / 2) : -difference / 2;
}

void copy_window(const ImageView& image, int top, int left, ImageSize size, bool mirror, float* out, Border border) {
  const ptrdiff_t plane = static_cast<ptrdiff_t>(size.height) * size.width;
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x, ++out) {
      int row = top + y;
      int column = left + (mirror ? size.width - 1 - x : x);
      if (border == Border::kReflected) {
        row = reflected(row, image.height);
        column = reflected(column, image.width);
      }
      const bool inside = row >= 0 && row < image.height && column >= 0 && column < image.width;
      const uint8_t* pixel = inside ? image.pixels + row * image.stride + ptrdiff_t{3} * column : nullptr;
      for (int c = 0; c < 3; ++c) out[c * plane] = inside ? static_cast<float>(pixel[c]) : 0.0F;
    }
  }
}

}  // namespace trainyard::data
