#include "trainyard/data/record_image.h"

#include <fmt/core.h>

#include "trainyard/data/decode.h"

namespace trainyard::data {
namespace {

// Planes to interleaved pixels.
core::Result<Image> raw_image(const Record& record) {
  Image image{.height = record.height, .width = record.width};
  const size_t plane = static_cast<size_t>(record.height) * record.width;
  if (record.bytes.size() != 3 * plane) {
    return core::Error(core::ErrorCode::kCorruptData, {.problem = "raw image has the wrong size",
                                                       .where = record.where,
                                                       .expected = fmt::format("{} bytes", 3 * plane),
                                                       .actual = fmt::format("{}", record.bytes.size())});
  }
  image.pixels.resize(3 * plane);
  for (size_t i = 0; i < plane; ++i) {
    for (size_t c = 0; c < 3; ++c) image.pixels[3 * i + c] = static_cast<uint8_t>(record.bytes[c * plane + i]);
  }
  return image;
}

}  // namespace

core::Result<ImageSize> record_image_size(const Record& record) {
  if (record.encoding == Encoding::kRawChw) return ImageSize{record.height, record.width};
  auto size = read_image_size(record.bytes);
  if (!size.ok()) return size.error().in(record.where);
  return size;
}

core::Result<Image> record_image(const Record& record, const std::optional<CropWindow>& crop) {
  if (record.encoding == Encoding::kRawChw) {
    auto image = raw_image(record);
    if (!image.ok() || !crop) return image;
    return cut_out(image.value(), *crop);
  }
  auto image = decode_image(record.bytes, crop);
  if (!image.ok()) return image.error().in(record.where);
  return image;
}

int centred_start(int size, int target) {
  const int difference = target - size;
  return difference >= 0 ? -(difference / 2) : -difference / 2;
}

void copy_window(const Image& image, int top, int left, ImageSize size, bool mirror, float* out) {
  const ptrdiff_t plane = static_cast<ptrdiff_t>(size.height) * size.width;
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x, ++out) {
      const int row = top + y;
      const int column = left + (mirror ? size.width - 1 - x : x);
      const bool inside = row >= 0 && row < image.height && column >= 0 && column < image.width;
      const uint8_t* pixel =
          inside ? image.pixels.data() + 3 * (static_cast<ptrdiff_t>(row) * image.width + column) : nullptr;
      for (int c = 0; c < 3; ++c) out[c * plane] = inside ? static_cast<float>(pixel[c]) : 0.0F;
    }
  }
}

}  // namespace trainyard::data
