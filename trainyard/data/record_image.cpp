#include "trainyard/data/record_image.h"

#include <array>

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

void normalize(float* image, int64_t count, bool subtract_means) {
  if (!subtract_means) {
    for (int64_t i = 0; i < count; ++i) image[i] = image[i] * (1 / 127.5F) - 1;
    return;
  }
  static constexpr std::array<float, 3> kChannelMeans = {123.68F, 116.78F, 103.94F};
  const int64_t plane = count / 3;
  for (int c = 0; c < 3; ++c) {
    for (int64_t i = 0; i < plane; ++i) image[c * plane + i] -= kChannelMeans[c];
  }
}

}  // namespace trainyard::data
