#include "trainyard/data/codecs/decode.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::decode_test {
namespace {

using core::ErrorCode;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

TEST(Decode, PngUnderAnyName) {
  const Image image = noisy_image(13, 21);
  const auto file = encode_png(image);
  EXPECT_EQ(read_image_size(file).value(), (ImageSize{13, 21}));
  EXPECT_EQ(decode_image(file).value().pixels, image.pixels);
  const CropWindow crop{2, 5, 7, 11};
  EXPECT_EQ(decode_image(file, crop).value().pixels, part_of(image, crop).pixels);
}

TEST(Decode, ACropOutsideOfAPngIsAnError) {
  const auto file = encode_png(noisy_image(13, 21));
  EXPECT_TRUE(decode_image(file, CropWindow{0, 0, 13, 21}).ok());
  for (const CropWindow& crop : {CropWindow{1, 0, 13, 21}, CropWindow{0, 1, 13, 21}, CropWindow{0, 0, 0, 1}}) {
    auto image = decode_image(file, crop);
    ASSERT_FALSE(image.ok());
    EXPECT_EQ(image.error().code(), ErrorCode::kCorruptData);
  }
}

TEST(Decode, GrayPngAndAlpha) {
  const std::vector<uint8_t> gray = {0, 50, 100, 150, 200, 250};
  const Image image = decode_image(encode_png(gray, 2, 3, SPNG_COLOR_TYPE_GRAYSCALE)).value();
  for (size_t i = 0; i < image.pixels.size(); ++i) EXPECT_EQ(image.pixels[i], gray[i / 3]);
  const std::vector<uint8_t> rgba = {10, 20, 30, 128, 40, 50, 60, 0};
  EXPECT_EQ(decode_image(encode_png(rgba, 1, 2, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA)).value().pixels,
            (PooledVector<uint8_t>{10, 20, 30, 40, 50, 60}));
}

TEST(Decode, DamagedPngIsAnError) {
  const auto file = encode_png(noisy_image(20, 20));
  for (size_t size : {size_t{4}, size_t{20}, file.size() / 2}) {
    EXPECT_EQ(decode_image(std::span(file).first(size)).error().code(), ErrorCode::kCorruptData);
  }
  auto flipped = file;
  flipped[file.size() / 2] ^= std::byte{1};  // the chunk's CRC sees it
  EXPECT_EQ(decode_image(flipped).error().code(), ErrorCode::kCorruptData);
}

TEST(Decode, NoFlippedBitAndNoMissingByteOfAPngChangesItsPixels) {
  const Image image = noisy_image(5, 7);
  const auto file = encode_png(image);
  const auto is_right_or_refused = [&](const std::vector<std::byte>& damaged) {
    auto read = decode_image(damaged);
    return read.ok() ? read.value().pixels == image.pixels : read.error().code() == ErrorCode::kCorruptData;
  };
  int refused = 0;
  // A flip in the first 8 bytes makes it no PNG.
  for (size_t bit = 64; bit < 8 * file.size(); ++bit) {
    std::vector<std::byte> damaged(file.begin(), file.end());
    damaged[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_TRUE(is_right_or_refused(damaged)) << "bit " << bit;
    refused += decode_image(damaged).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, static_cast<int>(8 * file.size() / 2));
  for (size_t size = 8; size < file.size(); ++size) {
    EXPECT_TRUE(is_right_or_refused({file.begin(), file.begin() + static_cast<ptrdiff_t>(size)})) << size << " bytes";
  }
}

TEST(Decode, LargePngIsRefusedBeforeAnythingIsAllocated) {
  const auto file = encode_png(flat_image(300, 400, 9));
  int64_t allocated = 0;
  DecodeLimits limits{.max_pixels = 119'999, .before_allocation = [&](int64_t bytes) { allocated += bytes; }};
  EXPECT_NE(std::string(decode_image(file, {}, {.limits = limits}).error().what()).find("image too large"),
            std::string::npos);
  EXPECT_EQ(allocated, 0);
  limits.max_pixels = 120'000;
  EXPECT_TRUE(decode_image(file, {}, {.limits = limits}).ok());
  EXPECT_EQ(allocated, 360'000);
}

TEST(Decode, JpegAndPngGoToTheirDecoders) {
  EXPECT_EQ(read_image_size(encode_jpeg(smooth_image(8, 9))).value(), (ImageSize{8, 9}));
}

TEST(Decode, EmptyAndOtherFilesSayWhatTheyAre) {
  EXPECT_STREQ(decode_image({}).error().what(),
               "image is empty: expected JPEG, PNG, WebP, GIF, BMP or TIFF, got 0 bytes");
  EXPECT_STREQ(read_image_size(bytes_of("%PDF-1.7")).error().what(),
               "image is of no known format: expected JPEG, PNG, WebP, GIF, BMP or TIFF, got a file that begins with "
               "25 50 44 46");
}

}  // namespace
}  // namespace trainyard::data::decode_test
