// Small pictures of images, and a sheet of them with a text under each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Returns the image, scaled down so that neither side has more than `longest_side` pixels.
[[nodiscard]] Image thumbnail(const ImageView& image, int longest_side);

struct CaptionedImage {
  Image image{};
  std::vector<std::string> lines{};  // UTF-8; the sheet shows ASCII only, and the beginning of a long line
};

// Draws the images in rows, each in the middle of a field of `side` x `side` pixels with its lines below it, about as
// wide as high. A pixel of a small image becomes a square of pixels. Throws kInvalidArgument for no images, for an
// image that is empty or larger than its field, and for a sheet of more than a hundred million pixels.
Image captioned_sheet(const std::vector<CaptionedImage>& images, int side);

}  // namespace trainyard::data
