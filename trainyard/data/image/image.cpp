#include "trainyard/data/image/image.h"

#include <cstring>

#include <fmt/core.h>

namespace trainyard::data {

using core::Error;
using core::ErrorCode;

ImageView ImageView::part(const CropWindow& crop) const {
  ImageView result = *this;
  result.height = crop.height;
  result.width = crop.width;
  result.pixels += crop.y * stride + ptrdiff_t{3} * crop.x;
  return result;
}

Image copy_of(const ImageView& view) {
  Image image{.height = view.height, .width = view.width};
  const size_t row_bytes = size_t{3} * view.width;
  image.pixels.resize(row_bytes * view.height);
  for (int y = 0; y < view.height; ++y) {
    std::memcpy(image.pixels.data() + row_bytes * y, view.pixels + y * view.stride, row_bytes);
  }
  return image;
}

core::Result<void> check_size(ImageSize size, const DecodeLimits& limits) {
  const int64_t pixels = int64_t{size.height} * size.width;
  if (pixels <= limits.max_pixels) return {};
  return Error(ErrorCode::kCorruptData, {.problem = "image too large",
                                         .expected = fmt::format("at most {} pixels", limits.max_pixels),
                                         .actual = fmt::format("{} x {} in its header", size.width, size.height),
                                         .remedy = "remove the image from the data set"});
}

core::Result<void> check_inside(const CropWindow& crop, ImageSize size) {
  const bool inside = crop.y >= 0 && crop.x >= 0 && crop.height > 0 && crop.width > 0 &&
                      crop.height <= size.height - crop.y && crop.width <= size.width - crop.x;
  if (inside) return {};
  return Error(ErrorCode::kCorruptData,
               {.problem = "crop is not inside the image",
                .expected = fmt::format("inside {} x {}", size.width, size.height),
                .actual = fmt::format("{} x {} at ({}, {})", crop.width, crop.height, crop.x, crop.y)});
}

}  // namespace trainyard::data
