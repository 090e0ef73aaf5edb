#include "trainyard/data/detection/drawn_boxes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trainyard/data/image/pixel_text.h"

namespace trainyard::data {
namespace {

constexpr int kEdge = 2;  // pixels
using BoxColor = std::array<uint8_t, 3>;

// Neighbouring labels have hues far apart: each is turned by the golden ratio.
BoxColor color_of(int64_t label) {
  const double turn = static_cast<double>(label % 1000) * 0.618033988749895;
  const double hue = 6 * (turn - std::floor(turn));
  BoxColor color{};
  for (size_t c = 0; c < 3; ++c) {
    const double distance = std::abs(hue - 2.0 * static_cast<double>(c));
    const double part = std::clamp(2 - std::min(distance, 6 - distance), 0.0, 1.0);
    color[c] = static_cast<uint8_t>(std::lround(40 + 215 * part));
  }
  return color;
}

// Fills rows [top, bottom) and columns [left, right), as far as they are in the field.
void fill(Image& picture, const CropWindow& field, int top, int left, int bottom, int right, const BoxColor& color) {
  top = std::max(top, field.y);
  left = std::max(left, field.x);
  bottom = std::min(bottom, field.y + field.height);
  right = std::min(right, field.x + field.width);
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) {
      std::copy(color.begin(), color.end(),
                picture.pixels.begin() + 3 * (static_cast<std::ptrdiff_t>(y) * picture.width + x));
    }
  }
}

int place(float part, int begin, int length) {
  return begin + static_cast<int>(std::lround(std::clamp(part, 0.0F, 1.0F) * static_cast<float>(length)));
}

}  // namespace

void draw_boxes(Image& picture, const CropWindow& field, const std::vector<DrawnBox>& boxes) {
  check_inside(field, {picture.height, picture.width}).value();
  for (const DrawnBox& drawn : boxes) {
    const Box& box = drawn.box;
    if (!std::isfinite(box.ymin + box.xmin + box.ymax + box.xmax)) continue;
    const BoxColor color = color_of(drawn.label);
    const int top = place(box.ymin, field.y, field.height), bottom = place(box.ymax, field.y, field.height);
    const int left = place(box.xmin, field.x, field.width), right = place(box.xmax, field.x, field.width);
    fill(picture, field, top, left, top + kEdge, right, color);
    fill(picture, field, bottom - kEdge, left, bottom, right, color);
    fill(picture, field, top, left, bottom, left + kEdge, color);
    fill(picture, field, top, right - kEdge, bottom, right, color);
    if (drawn.text.empty() || top + kEdge + kLetterHeight + 2 > field.y + field.height) continue;
    const int end =
        std::min(left + kEdge + 2 + static_cast<int>(drawn.text.size()) * kLetterWidth, field.x + field.width);
    fill(picture, field, top + kEdge, left + kEdge, top + kEdge + kLetterHeight + 2, end, {255, 255, 255});
    draw_text(picture, left + kEdge + 1, top + kEdge + 1, end, drawn.text);
  }
}

}  // namespace trainyard::data
