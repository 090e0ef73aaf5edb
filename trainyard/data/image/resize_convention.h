// What the conventions of resizing (ResizeConvention, image.h) say about sizes and about the centre.
#pragma once

#include <cstdint>
#include <string_view>

#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the convention called "plain", "tensorflow", "torchvision", "dali" or "opencv". Throws kNotFound.
[[nodiscard]] ResizeConvention resize_convention(std::string_view name);
// Returns the convention's name.
[[nodiscard]] std::string_view resize_convention_name(ResizeConvention convention);

struct ScaledSize {
  ImageSize size{};
  // Distance in the image, in pixels, between neighbouring rows, and columns. 0: the image's side divided by the scaled
  // one.
  float row_step = 0, column_step = 0;
};

// Returns the size of an image whose shorter side is scaled to `shorter` pixels. Neither may be empty.
[[nodiscard]] ScaledSize scale_to_shorter_side(ImageSize image, int64_t shorter, ResizeConvention convention);

// Returns how many pixels are cut off before the centre, when `margin` are cut off in all.
[[nodiscard]] int centre_start(int margin, ResizeConvention convention);

}  // namespace trainyard::data
