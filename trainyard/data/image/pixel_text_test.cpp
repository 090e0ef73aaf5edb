#include "trainyard/data/image/pixel_text.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "trainyard/core/files/crc32c.h"
#include "trainyard/core/testing/error.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::pixel_text_test {
namespace {

// The first channel of an image, a line for each row: '#' where it is black.
std::string drawing_of(const Image& image) {
  std::string drawing;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      drawing += image.pixels[3 * (static_cast<size_t>(y) * image.width + x)] == 0 ? '#' : '.';
    }
    drawing += '\n';
  }
  return drawing;
}

// The text in a white image of one line.
Image line_of(std::string_view text, int width, int right) {
  Image image = flat_image(kLetterHeight, width, 255);
  draw_text(image, 0, 0, right, text);
  return image;
}

TEST(PixelText, EachLetterKeepsItsForm) {
  std::string all;
  for (char letter = ' '; letter <= '~'; ++letter) all += letter;
  const int width = static_cast<int>(all.size()) * kLetterWidth;
  const Image image = line_of(all, width, width);
  EXPECT_EQ(core::crc32c(std::as_bytes(std::span(image.pixels))), 598195399U) << drawing_of(image);
}

TEST(PixelText, WhatDoesNotFitEndsInTwoDots) {
  const auto drawn = [](std::string_view text, int right) { return drawing_of(line_of(text, 40, right)); };
  EXPECT_EQ(drawn("abcd", 24), drawn("abcd", 40)) << "just fits";
  EXPECT_EQ(drawn("abcd", 23), drawn("a..", 40));
  EXPECT_EQ(drawn("abcd", 12), drawn("..", 40));
  EXPECT_EQ(drawn("abcd", 11), drawn(".", 40));
  EXPECT_EQ(drawn("abcd", 5), drawn("", 40));
  EXPECT_EQ(drawn("abcd", -3), drawn("", 40));
}

TEST(PixelText, OtherCharactersAreAQuestionMarkEach) {
  const std::string marked = drawing_of(line_of("a?b??", 30, 30));
  EXPECT_EQ(drawing_of(line_of("a\xc3\xa9"
                               "b\t\x7f",
                               30, 30)),
            marked);
  EXPECT_EQ(drawing_of(line_of("a\xe6\x9c\xac"
                               "b\x1f\xf0\x9f\x90\xb6",
                               30, 30)),
            marked);
}

TEST(PixelText, IsDrawnAtItsPlaceInAllChannels) {
  Image image = flat_image(12, 20, 200);
  draw_text(image, 3, 2, 20, "T", 7);
  // T has its bar in the uppermost row and its stem in the middle of five columns.
  const auto pixel = [&](int y, int x) { return image.pixels.data() + 3 * (y * 20 + x); };
  for (int c = 0; c < 3; ++c) {
    EXPECT_EQ(pixel(2, 3)[c], 7);
    EXPECT_EQ(pixel(2, 7)[c], 7);
    EXPECT_EQ(pixel(8, 5)[c], 7);
    EXPECT_EQ(pixel(8, 3)[c], 200);
    EXPECT_EQ(pixel(9, 5)[c], 200);
    EXPECT_EQ(pixel(2, 8)[c], 200);
    EXPECT_EQ(pixel(1, 5)[c], 200);
  }
}

TEST(PixelText, RefusesPlacesOutsideOfTheImage) {
  Image image = flat_image(10, 20, 255);
  const auto refused = [&](int left, int top, int right) {
    return core::error_of([&] { draw_text(image, left, top, right, "a"); }).has_value();
  };
  EXPECT_FALSE(refused(0, 0, 20));
  EXPECT_FALSE(refused(0, 2, 20)) << "ends with the last row";
  EXPECT_TRUE(refused(0, 3, 20));
  EXPECT_TRUE(refused(-1, 0, 20));
  EXPECT_TRUE(refused(0, -1, 20));
  EXPECT_TRUE(refused(0, 0, 21));
}

}  // namespace
}  // namespace trainyard::data::pixel_text_test
