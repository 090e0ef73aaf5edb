#include "trainyard/data/image/orientation.h"

#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/testing/exif.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::orientation_test {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (int value : values) bytes.push_back(std::byte(value));
  return bytes;
}

// One entry in the directory at offset 8.
std::vector<std::byte> exif(int orientation, bool big_endian) {
  return big_endian ? bytes_of({'E', 'x',  'i', 'f', 0, 0, 'M', 'M', 0, 42,          0, 0, 0, 8, 0, 1,
                                1,   0x12, 0,   3,   0, 0, 0,   1,   0, orientation, 0, 0, 0, 0, 0, 0})
                    : bytes_of({'E',  'x', 'i', 'f', 0, 0, 'I', 'I', 42,          0, 8, 0, 0, 0, 1, 0,
                                0x12, 1,   3,   0,   1, 0, 0,   0,   orientation, 0, 0, 0, 0, 0, 0, 0});
}

TEST(Orientation, ReadsTheTag) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(exif_orientation(exif(orientation, false)), orientation);
    EXPECT_EQ(exif_orientation(exif(orientation, true)), orientation);
  }
}

TEST(Orientation, WhatIsOutOfOrderIsAsStored) {
  const auto good = exif(6, false);
  for (int orientation : {0, 9, 200}) EXPECT_EQ(exif_orientation(exif(orientation, true)), 1);
  for (size_t size = 0; size < 26; ++size) EXPECT_EQ(exif_orientation(std::span(good).first(size)), 1) << size;
  for (size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      auto damaged = good;
      damaged[i] = std::byte(value);
      const int orientation = exif_orientation(damaged);
      EXPECT_TRUE(orientation >= 1 && orientation <= 8);
    }
  }
}

// The directory says how many entries it has; bytes behind them are of something else.
TEST(Orientation, IsThatOfAnEntryInTheDirectory) {
  for (const bool big_endian : {false, true}) {
    std::vector<std::byte> bytes = exif(6, big_endian);
    const std::vector<std::byte> other = big_endian ? bytes_of({1, 0x10, 0, 3, 0, 0, 0, 1, 0, 5, 0, 0})
                                                    : bytes_of({0x10, 1, 3, 0, 1, 0, 0, 0, 5, 0, 0, 0});
    constexpr int kCount = 14, kFirstEntry = 16;
    bytes.insert(bytes.begin() + kFirstEntry, other.begin(), other.end());
    EXPECT_EQ(exif_orientation(bytes), 1) << big_endian;
    bytes[big_endian ? kCount + 1 : kCount] = std::byte{2};
    EXPECT_EQ(exif_orientation(bytes), 6) << big_endian;
  }
}

// EXIF 2.3: the stored row 0 is the visual ... side, the stored column 0 the visual ... side.
TEST(Orientation, SidesAreWhereTheStandardSays) {
  Image stored{.height = 2, .width = 3};
  for (int i = 0; i < 6; ++i) stored.pixels.insert(stored.pixels.end(), 3, static_cast<uint8_t>(i));
  const std::vector<std::vector<int>> expected = {
      {0, 1, 2, 3, 4, 5},  // 1: top, left
      {2, 1, 0, 5, 4, 3},  // 2: top, right
      {5, 4, 3, 2, 1, 0},  // 3: bottom, right
      {3, 4, 5, 0, 1, 2},  // 4: bottom, left
      {0, 3, 1, 4, 2, 5},  // 5: left, top
      {3, 0, 4, 1, 5, 2},  // 6: right, top
      {5, 2, 4, 1, 3, 0},  // 7: right, bottom
      {2, 5, 1, 4, 0, 3},  // 8: left, bottom
  };
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image turned = oriented(stored, orientation);
    EXPECT_EQ((ImageSize{turned.height, turned.width}), oriented_size({2, 3}, orientation));
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(turned.pixels[3 * i], expected[orientation - 1][i]) << orientation << " " << i;
  }
}

// A point lies on the same pixel of the image as of the rotated one.
TEST(Orientation, PointsAreTurnedAsPixelsAre) {
  constexpr int kRows = 4, kColumns = 8;  // whose parts are exact in float
  Image stored{.height = kRows, .width = kColumns};
  for (int i = 0; i < kRows * kColumns; ++i) stored.pixels.insert(stored.pixels.end(), 3, static_cast<uint8_t>(i));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image turned = oriented(stored, orientation);
    for (int i = 0; i < kRows * kColumns; ++i) {
      const auto row = static_cast<float>(i / kColumns), column = static_cast<float>(i % kColumns);
      const ImagePoint point = oriented_point({(row + 0.5F) / kRows, (column + 0.5F) / kColumns}, orientation);
      const int y = static_cast<int>(point.y * static_cast<float>(turned.height));
      const int x = static_cast<int>(point.x * static_cast<float>(turned.width));
      EXPECT_EQ(turned.pixels[static_cast<size_t>(3 * (y * turned.width + x))], i) << orientation;
    }
  }
}

TEST(Orientation, IsReadFromAFile) {
  const auto plain = encode_jpeg(noisy_image(8, 9));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(read_image_orientation(with_exif(plain, orientation)), orientation);
  }
  EXPECT_EQ(read_image_orientation(plain), 1);
  EXPECT_EQ(read_image_orientation(std::span(plain).first(3)), 1) << "damaged";
  EXPECT_EQ(read_image_orientation(bytes_of({1, 2, 3, 4})), 1) << "no image";
}

TEST(Orientation, CropsOfATurnedJpegArePartsOfTheTurnedWhole) {
  core::RandomStream random(5, "crops");
  const auto plain = encode_jpeg(noisy_image(41, 67));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto file = with_exif(plain, orientation);
    EXPECT_EQ(decode_jpeg(file).value().pixels, decode_jpeg(plain).value().pixels) << "not asked for";
    const Image whole = decode_jpeg(file, {}, {.exif_orientation = true}).value();
    EXPECT_EQ(whole.pixels, oriented(decode_jpeg(plain).value(), orientation).pixels);
    const ImageSize size = read_jpeg_size(file, true).value();
    EXPECT_EQ(size, (ImageSize{whole.height, whole.width}));
    for (int i = 0; i < 20; ++i) {
      const CropWindow crop = random_crop(random, size.height, size.width);
      EXPECT_EQ(decode_jpeg(file, crop, {.exif_orientation = true}).value().pixels, part_of(whole, crop).pixels);
    }
  }
}

}  // namespace
}  // namespace trainyard::data::orientation_test
