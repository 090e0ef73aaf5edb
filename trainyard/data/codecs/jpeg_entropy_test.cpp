// Our entropy decoder against libjpeg's, which is the independent source: the same pixels, to the bit.
#include "trainyard/data/codecs/jpeg_entropy.h"

#include <memory>

#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/testing/jpeg_encoder.h"
#include "trainyard/data/testing/test_images.h"

namespace trainyard::data {
namespace {

struct Encoding {
  int quality = 90;
  int horizontal = 1, vertical = 1;  // samples of the first component for one of the others
  bool gray = false, optimized = false;
  int restart_rows = 0;
};

std::vector<std::byte> encode(const Image& image, const Encoding& how) {
  return encode_with(image.pixels, image.height, image.width, JCS_RGB, [&](jpeg_compress_struct& codec) {
    if (how.gray) jpeg_set_colorspace(&codec, JCS_GRAYSCALE);
    jpeg_set_quality(&codec, how.quality, TRUE);
    codec.comp_info[0].h_samp_factor = how.horizontal;
    codec.comp_info[0].v_samp_factor = how.vertical;
    codec.optimize_coding = how.optimized ? TRUE : FALSE;
    codec.restart_in_rows = how.restart_rows;
  });
}

// The whole image by libjpeg alone.
Image plain_decode(std::span<const std::byte> file) {
  jpeg_decompress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  errors.emit_message = [](j_common_ptr, int) {};
  jpeg_create_decompress(&codec);
  jpeg_mem_src(&codec, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&codec, TRUE);
  codec.out_color_space = JCS_RGB;
  jpeg_start_decompress(&codec);
  Image image{.height = static_cast<int>(codec.output_height), .width = static_cast<int>(codec.output_width)};
  image.pixels.resize(size_t{3} * image.height * image.width);
  while (codec.output_scanline < codec.output_height) {
    JSAMPROW row = image.pixels.data() + size_t{3} * image.width * codec.output_scanline;
    jpeg_read_scanlines(&codec, &row, 1);
  }
  jpeg_destroy_decompress(&codec);
  return image;
}

// The whole image and random crops of it.
void expect_same_pixels(std::span<const std::byte> file, int crops, core::RandomStream& random) {
  const Image expected = plain_decode(file);
  ASSERT_EQ(decode_jpeg(file).value().pixels, expected.pixels);
  for (int i = 0; i < crops; ++i) {
    CropWindow crop;
    crop.height = 1 + static_cast<int>(random.below(expected.height));
    crop.width = 1 + static_cast<int>(random.below(expected.width));
    crop.y = static_cast<int>(random.below(expected.height - crop.height + 1));
    crop.x = static_cast<int>(random.below(expected.width - crop.width + 1));
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
  const Image expected = plain_decode(file);
  // What the MCU at the cut holds is not defined; those before and behind it are.
  const auto rows = [](const Image& whole, int first, int count) {
    return part_of(whole, {first, 0, count, whole.width}).pixels;
  };
  EXPECT_EQ(rows(image, 0, 32), rows(expected, 0, 32));
  EXPECT_EQ(rows(image, 56, 8), rows(expected, 56, 8));
  EXPECT_EQ(image.pixels.back(), 128);
}

}  // namespace
}  // namespace trainyard::data
