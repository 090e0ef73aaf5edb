// Our entropy decoder against libjpeg's, which is the independent source: the same pixels, to the bit.
#include "trainyard/data/codecs/jpeg_entropy.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/testing/jpeg_encoder.h"
#include "trainyard/data/testing/plain_jpeg.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data::jpeg_entropy_test {
namespace {

struct Encoding {
  int quality = 90;
  int horizontal = 1, vertical = 1;  // samples of the first component for one of the others
  bool gray = false, optimized = false;
  int restart_rows = 0;
  bool arithmetic = false;
};

std::vector<std::byte> encode(const Image& image, const Encoding& how) {
  return encode_with(image.pixels, image.height, image.width, JCS_RGB, [&](jpeg_compress_struct& codec) {
    if (how.gray) jpeg_set_colorspace(&codec, JCS_GRAYSCALE);
    jpeg_set_quality(&codec, how.quality, TRUE);
    codec.comp_info[0].h_samp_factor = how.horizontal;
    codec.comp_info[0].v_samp_factor = how.vertical;
    codec.optimize_coding = how.optimized ? TRUE : FALSE;
    codec.restart_in_rows = how.restart_rows;
    codec.arith_code = how.arithmetic ? TRUE : FALSE;
  });
}

Image plain_decode(std::span<const std::byte> file) {
  return decode_plainly(file).image;
}

CropWindow random_crop(const Image& image, core::RandomStream& random) {
  CropWindow crop;
  crop.height = 1 + static_cast<int>(random.below(image.height));
  crop.width = 1 + static_cast<int>(random.below(image.width));
  crop.y = static_cast<int>(random.below(image.height - crop.height + 1));
  crop.x = static_cast<int>(random.below(image.width - crop.width + 1));
  return crop;
}

// The whole image and random crops of it.
void expect_same_pixels(std::span<const std::byte> file, int crops, core::RandomStream& random) {
  const Image expected = plain_decode(file);
  ASSERT_EQ(decode_jpeg(file).value().pixels, expected.pixels);
  for (int i = 0; i < crops; ++i) {
    const CropWindow crop = random_crop(expected, random);
    ASSERT_EQ(decode_jpeg(file, crop).value().pixels, part_of(expected, crop).pixels)
        << crop.y << " " << crop.x << " " << crop.height << " " << crop.width;
  }
}

TEST(JpegEntropy, SamePixelsAsLibjpeg) {
  core::RandomStream random(11, "crops");
  // Noise at quality 100 uses all lengths of codes and values, smooth images blocks that end early.
  for (const Image& image : {noisy_image(61, 83), smooth_image(90, 75), flat_image(33, 17, 200)}) {
    for (int quality : {5, 50, 90, 100}) {
      for (bool optimized : {false, true}) {
        for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
          const auto file = encode(image, {quality, horizontal, vertical, false, optimized});
          SCOPED_TRACE(testing::Message() << quality << " " << optimized << " " << horizontal << "x" << vertical);
          expect_same_pixels(file, 10, random);
        }
        expect_same_pixels(encode(image, {quality, 1, 1, true, optimized}), 10, random);
        expect_same_pixels(encode(image, {quality, 2, 2, true, optimized}), 10, random);
      }
    }
  }
}

TEST(JpegEntropy, LibjpegReadsRestartIntervals) {
  core::RandomStream random(12, "crops");
  expect_same_pixels(encode(noisy_image(61, 83), {.restart_rows = 1}), 20, random);
}

TEST(JpegEntropy, LibjpegReadsArithmeticCodes) {
  core::RandomStream random(14, "crops");
  expect_same_pixels(encode(noisy_image(61, 83), {.arithmetic = true}), 0, random);
}

// More than one filling of the decoder's buffer, with crops that begin in any of them.
TEST(JpegEntropy, LargeImages) {
  core::RandomStream random(13, "crops");
  const auto file = encode(noisy_image(400, 500), {.quality = 95});
  ASSERT_GT(file.size(), 200'000u);
  expect_same_pixels(file, 20, random);
}

TEST(JpegEntropy, SamePixelsAsLibjpegOnImagenet) {
  const auto directory = core::shared_data("imagenet_sample");
  if (!directory) GTEST_SKIP() << core::missing_shared_data("imagenet_sample");
  core::RandomStream random(14, "crops");
  const auto dataset = datasets().get("imagenet")({.directory = *directory});
  for (int64_t i = 0; i < dataset->size(); i += 4) {
    const Record record = dataset->read(i).value();
    SCOPED_TRACE(record.where);
    expect_same_pixels(record.bytes, 3, random);
  }
}

// An end-of-image marker in the middle: gray from there on, as libjpeg has it.
TEST(JpegEntropy, MarkerThatComesTooEarly) {
  auto file = encode(noisy_image(64, 64), {});
  const size_t cut = file.size() * 2 / 3;
  file.resize(cut);
  if (file.back() == std::byte{0xff}) file.pop_back();
  file.push_back(std::byte{0xff});
  file.push_back(std::byte{0xd9});
  const Image image = decode_jpeg(file).value();
  EXPECT_EQ(image.pixels, plain_decode(file).pixels);
  EXPECT_EQ(image.pixels.back(), 128);
}

// Changes one to four places of a file: bits, bytes, bytes more, or its end.
std::vector<std::byte> damaged(std::vector<std::byte> file, core::RandomStream& random) {
  constexpr std::byte kPrefix{0xff}, kEnd{0xd9};
  constexpr size_t kSignature = 2;
  const auto any_place = [&] { return kSignature + random.below(file.size() - 2 * kSignature); };
  const auto any_byte = [&] { return static_cast<std::byte>(random.below(256)); };
  for (uint64_t left = 1 + random.below(4); left > 0; --left) {
    const size_t place = any_place();
    switch (random.below(8)) {
      case 0:
      case 1:
      case 2:
        file[place] = any_byte();
        break;
      case 3:
      case 4:
      case 5:
        file[place] ^= static_cast<std::byte>(1 << random.below(8));
        break;
      case 6:
        file.insert(file.begin() + static_cast<std::ptrdiff_t>(place),
                    {kPrefix, random.below(2) == 0 ? kPrefix : any_byte()});
        break;
      default:
        if (left > 1) break;
        file.resize(std::max<size_t>(place, file.size() / 2));
        if (random.below(4) != 0) file.insert(file.end(), {kPrefix, kEnd});
        return file;
    }
  }
  return file;
}

// The pixels of a file that is damaged anywhere are those of libjpeg, whole and in part, or both refuse it. Only a file
// that ends too early is an error here and none of libjpeg's.
TEST(JpegEntropy, DamagedFilesHaveThePixelsOfLibjpeg) {
  core::RandomStream random(15, "damage");
  std::vector<std::vector<std::byte>> files;
  for (const Image& image : {noisy_image(48, 64), smooth_image(64, 80)}) {
    for (const int quality : {30, 75, 95}) {
      for (const bool optimized : {false, true}) {
        for (const int sampling : {1, 2}) {
          files.push_back(encode(
              image, {.quality = quality, .horizontal = sampling, .vertical = sampling, .optimized = optimized}));
        }
      }
    }
    files.push_back(encode(image, {.gray = true}));
    files.push_back(encode(image, {.horizontal = 2, .restart_rows = 2}));
  }
  constexpr int64_t kMostPixels = 1 << 16;  // a damaged header may claim any size
  const DecodeLimits limits{.max_pixels = kMostPixels};
  int compared = 0, with_invalid_codes = 0;
  for (int round = 0; round < 7000; ++round) {
    SCOPED_TRACE(round);
    const std::vector<std::byte> file = damaged(files[random.below(files.size())], random);
    const PlainDecoding plain = decode_plainly(file, kMostPixels);
    auto ours = decode_jpeg(file, {}, {.limits = limits});
    ASSERT_TRUE(ours.ok() || !plain.error.empty() || plain.ends_early) << ours.error().what();
    ASSERT_TRUE(!ours.ok() || plain.error.empty()) << plain.error;
    if (!ours.ok()) continue;
    ASSERT_EQ(ours.value().pixels, plain.image.pixels);
    const CropWindow crop = random_crop(plain.image, random);
    auto part = decode_jpeg(file, crop, {.limits = limits});
    ASSERT_TRUE(part.ok());
    ASSERT_EQ(part.value().pixels, part_of(plain.image, crop).pixels);
    ++compared;
    if (plain.invalid_codes) ++with_invalid_codes;
  }
  EXPECT_GT(compared, 4000);
  EXPECT_GT(with_invalid_codes, 300) << "else this tests nothing of them";
}

// No encoder repeats the prefix before a stuffed zero. libjpeg reads the block twice then, and so do we.
TEST(JpegEntropy, ARepeatedPrefixIsReadAsLibjpegReadsIt) {
  int repeated = 0;
  for (const int quality : {60, 90, 100}) {
    const auto whole = encode(noisy_image(64, 80), {.quality = quality});
    for (size_t i = 800; i + 1 < whole.size(); ++i) {
      if (whole[i] != std::byte{0xff} || whole[i + 1] != std::byte{0}) continue;
      auto file = whole;
      file.insert(file.begin() + static_cast<std::ptrdiff_t>(i), std::byte{0xff});
      ASSERT_EQ(decode_jpeg(file).value().pixels, plain_decode(file).pixels) << quality << " " << i;
      ++repeated;
    }
  }
  EXPECT_GT(repeated, 20);
}

}  // namespace
}  // namespace trainyard::data::jpeg_entropy_test
