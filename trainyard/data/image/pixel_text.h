// Draws short texts into images, in letters of 5 x 8 pixels.
#pragma once

#include <cstdint>
#include <string_view>

#include "trainyard/data/image/image.h"

namespace trainyard::data {

inline constexpr int kLetterWidth = 6, kLetterHeight = 8;  // pixels, with the space after a letter

// Draws UTF-8 text from (left, top) on, in one gray value for all channels. What does not fit before column `right` is
// replaced by two dots, a character outside of ASCII by a question mark. The image must be as high as the text needs.
void draw_text(Image& image, int left, int top, int right, std::string_view text, uint8_t gray = 0);

}  // namespace trainyard::data
