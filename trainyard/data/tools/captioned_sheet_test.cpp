#include "trainyard/data/tools/captioned_sheet.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/error.h"
#include "trainyard/data/image/pixel_text.h"

namespace trainyard::data::captioned_sheet_test {
namespace {

using ::testing::HasSubstr;

Image plain(int height, int width, uint8_t value) {
  Image image{.height = height, .width = width};
  image.pixels.assign(size_t{3} * height * width, value);
  return image;
}

// The picture as lines of text, '#' for dark pixels.
std::string drawn(const Image& image) {
  std::string lines;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      lines += image.pixels[3 * (static_cast<size_t>(y) * image.width + x)] < 128 ? '#' : '.';
    }
    lines += '\n';
  }
  return lines;
}

TEST(PixelText, DrawsLetters) {
  Image image = plain(8, 18, 255);
  draw_text(image, 0, 0, 18, "T1?");
  EXPECT_EQ(drawn(image),
            "#####...#....###..\n"
            "#.#.#..##...#...#.\n"
            "..#.....#.......#.\n"
            "..#.....#.....##..\n"
            "..#.....#.....#...\n"
            "..#.....#.........\n"
            "..#....###....#...\n"
            "..................\n");
}

TEST(PixelText, CutsWhatDoesNotFitAndReplacesOtherScripts) {
  Image image = plain(8, 24, 255), expected = plain(8, 24, 255);
  draw_text(image, 0, 0, 24, "abcdef");
  draw_text(expected, 0, 0, 24, "ab..");
  EXPECT_EQ(drawn(image), drawn(expected));
  image = plain(8, 24, 255);
  expected = plain(8, 24, 255);
  draw_text(image, 0, 0, 24, "\xc3\xa9\n\xe7\x8c\xab");
  draw_text(expected, 0, 0, 24, "???");
  EXPECT_EQ(drawn(image), drawn(expected));
  EXPECT_THAT(core::message_of([&] { draw_text(image, 0, 1, 24, "a"); }), HasSubstr("outside"));
}

TEST(CaptionedSheet, ScalesDownOnly) {
  const Image large = plain(100, 300, 7);
  const Image small = thumbnail(large, 60);
  EXPECT_EQ(small.height, 20);
  EXPECT_EQ(small.width, 60);
  EXPECT_EQ(small.pixels[0], 7);
  EXPECT_EQ(small.pixels.back(), 7);
  EXPECT_EQ(thumbnail(large, 300).width, 300);
  EXPECT_EQ(thumbnail(large, 500).width, 300) << "never larger";
  EXPECT_EQ(thumbnail(plain(1, 1000, 9), 10).height, 1);
}

TEST(CaptionedSheet, PlacesImagesInTheMiddleOfTheirFields) {
  const Image sheet = captioned_sheet({{plain(20, 10, 0), {"I"}}, {plain(10, 20, 0), {}}}, 20);
  // Two fields of 20 pixels with gaps of 6, and a line of 10 pixels below.
  EXPECT_EQ(sheet.height, 6 + 20 + 10 + 6);
  EXPECT_EQ(sheet.width, 6 + 26 + 26);
  const auto at = [&](int y, int x) { return sheet.pixels[3 * (static_cast<size_t>(y) * sheet.width + x)]; };
  EXPECT_EQ(at(6, 11), 0);
  EXPECT_EQ(at(25, 20), 0);
  EXPECT_EQ(at(6, 10), 255);
  EXPECT_EQ(at(26, 11), 255);
  EXPECT_EQ(at(11, 32), 0);
  EXPECT_EQ(at(10, 32), 255);
  EXPECT_EQ(at(20, 51), 0);
  EXPECT_EQ(at(31, 8), 0) << "the letter";
}

TEST(CaptionedSheet, EnlargesSmallImagesByAWholeFactor) {
  Image two = plain(2, 1, 255);
  two.pixels[0] = 9;
  const Image sheet = captioned_sheet({{two, {}}}, 7);  // three times: 6 x 3 pixels
  int dark = 0;
  for (size_t p = 0; p < sheet.pixels.size(); p += 3) dark += sheet.pixels[p] == 9 ? 1 : 0;
  EXPECT_EQ(dark, 9);
  EXPECT_EQ(sheet.pixels[3 * (static_cast<size_t>(6) * sheet.width + 8)], 9);
  EXPECT_EQ(sheet.pixels[3 * (static_cast<size_t>(8) * sheet.width + 10)], 9);
}

TEST(CaptionedSheet, RefusesWhatDoesNotFit) {
  EXPECT_THAT(core::message_of([] { captioned_sheet({}, 20); }), HasSubstr("no images"));
  EXPECT_THAT(core::message_of([] {
                captioned_sheet({{plain(21, 3, 0), {}}}, 20);
              }),
              HasSubstr("does not fit into its field"));
  EXPECT_THAT(core::message_of([] { captioned_sheet({{Image(), {}}}, 20); }), HasSubstr("does not fit into its field"));
  EXPECT_THAT(core::message_of([] { captioned_sheet({{plain(1, 1, 0), {}}}, 20'000); }), HasSubstr("too large"));
}

TEST(CaptionedSheet, SaysWhatDoesNotFit) {
  const auto message = [](const std::vector<CaptionedImage>& images, int side) {
    return core::message_of([&] { captioned_sheet(images, side); });
  };
  EXPECT_EQ(message({}, 20), "a sheet has no images: expected at least one, got none");
  EXPECT_EQ(message({{plain(3, 21, 0), {}}}, 20),
            "an image does not fit into its field of a sheet: expected 1 x 1 to 20 x 20 pixels, got 21 x 3");
  EXPECT_EQ(message({{plain(21, 3, 0), {}}}, 20),
            "an image does not fit into its field of a sheet: expected 1 x 1 to 20 x 20 pixels, got 3 x 21");
  // A field with a line below, and gaps on all sides.
  EXPECT_EQ(message({{plain(1, 1, 0), {"a"}}}, 10'000),
            "a sheet is too large: expected at most 100000000 pixels, got 10012 x " +
                std::to_string(10'012 + kLetterHeight + 2));
  EXPECT_EQ(message({{plain(20, 20, 0), {}}}, 20), "no error");
}

TEST(CaptionedSheet, ThumbnailsAreTheWholeImage) {
  Image image = plain(100, 300, 200);
  for (int y = 50; y < 100; ++y) {
    for (int x = 0; x < 3 * 150; ++x) image.pixels[static_cast<size_t>(3 * 300 * y + x)] = 10;
  }
  const Image small = thumbnail(image, 60);
  ASSERT_EQ(small.pixels.size(), size_t{3} * 20 * 60);
  const auto at = [&](int y, int x) { return small.pixels[3 * (static_cast<size_t>(y) * 60 + x)]; };
  for (const int x : {0, 25, 35, 59}) {
    for (const int y : {0, 8, 12, 19}) EXPECT_EQ(at(y, x), y > 10 && x < 30 ? 10 : 200) << y << ' ' << x;
  }
}

}  // namespace
}  // namespace trainyard::data::captioned_sheet_test
