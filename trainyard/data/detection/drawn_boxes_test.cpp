#include "trainyard/data/detection/drawn_boxes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/image/pixel_text.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::drawn_boxes_test {
namespace {

using Color = std::array<uint8_t, 3>;

constexpr int kHeight = 40, kWidth = 60;
constexpr CropWindow kField{5, 7, 20, 30};  // rows 5 to 24, columns 7 to 36
constexpr Box kBox{.ymin = 0.1F, .xmin = 0.2F, .ymax = 0.9F, .xmax = 0.8F};

Color pixel(const Image& image, int y, int x) {
  const auto at = image.pixels.begin() + 3 * (y * image.width + x);
  return {at[0], at[1], at[2]};
}

void fill(Image& image, int top, int left, int bottom, int right, const Color& color) {
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) {
      std::copy(color.begin(), color.end(), image.pixels.begin() + 3 * (y * image.width + x));
    }
  }
}

Image drawn(const DrawnBox& box) {
  Image picture = flat_image(kHeight, kWidth, 9);
  draw_boxes(picture, kField, {box});
  return picture;
}

TEST(DrawnBoxes, EdgesAreTwoPixelsWideAndInsideOfTheBox) {
  const Image picture = drawn({.box = kBox});
  const int top = 5 + 2, bottom = 5 + 18, left = 7 + 6, right = 7 + 24;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const bool in_box = y >= top && y < bottom && x >= left && x < right;
      const bool inside = y >= top + 2 && y < bottom - 2 && x >= left + 2 && x < right - 2;
      const Color expected = in_box && !inside ? Color{255, 40, 40} : Color{9, 9, 9};
      ASSERT_EQ(pixel(picture, y, x), expected) << y << " " << x;
    }
  }
}

TEST(DrawnBoxes, TheLabelDecidesTheColour) {
  const auto color_of = [](int64_t label) { return pixel(drawn({.box = kBox, .label = label}), 7, 13); };
  EXPECT_EQ(color_of(0), (Color{255, 40, 40}));
  EXPECT_EQ(color_of(1), (Color{40, 103, 255}));
  EXPECT_EQ(color_of(3), (Color{255, 40, 228}));
  EXPECT_EQ(color_of(1003), color_of(3));
}

// In black on white, inside of the upper left corner, as long as the field is wide.
TEST(DrawnBoxes, TextsAreInsideOfTheUpperEdge) {
  for (const auto& [text, end] : {std::pair<std::string, int>{"ab", 13 + 4 + 12}, {"abcdefgh", 37}}) {
    Image expected = drawn({.box = kBox});
    fill(expected, 9, 15, 19, end, {255, 255, 255});
    draw_text(expected, 16, 10, end, text);
    EXPECT_EQ(drawn({.box = kBox, .text = text}).pixels, expected.pixels) << text;
  }
}

TEST(DrawnBoxes, ATextWithoutRoomBelowIsLeftOut) {
  Box low = kBox;
  low.ymin = 0.4F;  // row 13, and 12 more end with the field
  EXPECT_NE(drawn({.box = low, .text = "a"}).pixels, drawn({.box = low}).pixels);
  low.ymin = 0.45F;
  EXPECT_EQ(drawn({.box = low, .text = "a"}).pixels, drawn({.box = low}).pixels);
}

TEST(DrawnBoxes, TheFieldIsInsideOfThePicture) {
  Image picture = flat_image(kHeight, kWidth, 9);
  const auto refused = [&](const CropWindow& field) {
    return core::error_of([&] { draw_boxes(picture, field, {}); }).has_value();
  };
  EXPECT_FALSE(refused({20, 30, 20, 30}));
  EXPECT_TRUE(refused({21, 30, 20, 30}));
  EXPECT_TRUE(refused({20, 31, 20, 30}));
}

}  // namespace
}  // namespace trainyard::data::drawn_boxes_test
