// Files of the optional formats that are damaged, or of rare kinds: what is read of them, and what is refused.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/image_formats.h"
#include "trainyard/data/testing/format_files.h"

namespace trainyard::data::damaged_formats_test {
namespace {

// libjpeg fills up what is missing with gray, and warns.
TEST(DamagedFormats, AStripOfATiffThatEndsTooEarlyIsAnError) {
  std::vector<std::byte> bytes = format_file("jpeg.tif");
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  constexpr int kBytesOfStrips = 279;
  std::byte* const entry = tiff_entry(bytes, kBytesOfStrips);
  ASSERT_EQ(entry[9], std::byte{2});  // 568 bytes
  entry[9] = std::byte{1};            // 312
  auto image = decode_image(bytes);
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code(), core::ErrorCode::kCorruptData);
  EXPECT_THAT(image.error().what(), ::testing::HasSubstr("Premature end of JPEG file"));
}

// The pixels do not depend on it.
TEST(DamagedFormats, ATiffOfAnUnknownOrientationIsReadAsItIsStored) {
  std::vector<std::byte> bytes = format_file("turned.tif");
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  constexpr int kOrientation = 274;
  tiff_entry(bytes, kOrientation)[8] = std::byte{9};
  for (const bool turned : {false, true}) {
    auto image = decode_image(bytes, {}, {.exif_orientation = turned});
    ASSERT_TRUE(image.ok()) << image.error().what();
    expect_format_pixels(image.value(), format_pixels("turned_tif"), 0);
  }
}

TEST(DamagedFormats, AFileOfWhichTheHeaderAloneIsLeftIsNotTurned) {
  for (const std::string file : {"turned.webp", "turned.tif"}) {
    const std::vector<std::byte> bytes = format_file(file);
    if (!image_format_of(bytes)->built_in()) continue;
    EXPECT_NE(read_image_orientation(bytes), 1) << file;
    EXPECT_EQ(read_image_orientation(std::span(bytes).first(12)), 1) << file;
  }
}

// Codes of three bits: clear, 0, 1, clear, 2, and the one that is defined by that; end. Before the second clear the
// last one meant "0 1".
TEST(DamagedFormats, AGifMayForgetItsCodesInTheMiddle) {
  std::vector<std::byte> bytes;
  for (const char c : std::string("GIF89a")) bytes.push_back(static_cast<std::byte>(c));
  for (const int value : {5,    0,  1,    0,    0x81, 0,  0,                        // the screen
                          10,   10, 10,   20,   20,   20, 30,  30, 30, 40, 40, 40,  // four colours
                          0x2c, 0,  0,    0,    0,    5,  0,   1,  0,  0,           // the frame
                          2,    3,  0x44, 0x28, 0x17, 0,  0x3b}) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  auto image = decode_image(bytes);
  ASSERT_TRUE(image.ok()) << image.error().what();
  EXPECT_EQ(image.value().pixels, (PooledVector<uint8_t>{10, 10, 10, 20, 20, 20, 30, 30, 30, 30, 30, 30, 30, 30, 30}));
}

}  // namespace
}  // namespace trainyard::data::damaged_formats_test
