#include "trainyard/data/codecs/jpeg.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/random/random.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/testing/exif.h"
#include "trainyard/data/testing/jpeg_encoder.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/tensors/npy.h"

namespace trainyard::data::jpeg_test {
namespace {

using core::ErrorCode;

// JPEGs that encode_jpeg does not write: gray, CMYK (with Adobe's marker: inverted), progressive.
std::vector<std::byte> encode_special(std::span<const uint8_t> pixels, int height, int width, J_COLOR_SPACE space,
                                      bool progressive, J_COLOR_SPACE stored) {
  return encode_with(pixels, height, width, space, [&](jpeg_compress_struct& codec) {
    jpeg_set_colorspace(&codec, stored);
    jpeg_set_quality(&codec, 100, TRUE);
    if (progressive) jpeg_simple_progression(&codec);
  });
}

std::vector<std::byte> encode_progressive(const Image& image) {
  return encode_special(image.pixels, image.height, image.width, JCS_RGB, true, JCS_YCbCr);
}

void expect_near(const Image& actual, const Image& expected, int tolerance) {
  ASSERT_EQ(actual.height, expected.height);
  ASSERT_EQ(actual.width, expected.width);
  for (size_t i = 0; i < expected.pixels.size(); ++i) ASSERT_NEAR(actual.pixels[i], expected.pixels[i], tolerance) << i;
}

TEST(Jpeg, KeepsSmoothImages) {
  const Image image = smooth_image(37, 61);
  expect_near(decode_jpeg(encode_jpeg(image, 100, ChromaSubsampling::k444)).value(), image, 5);
  expect_near(decode_jpeg(encode_jpeg(image, 95)).value(), image, 12);
  EXPECT_EQ(read_jpeg_size(encode_jpeg(image)).value(), (ImageSize{37, 61}));
}

TEST(Jpeg, ReadsProgressive) {
  const Image image = smooth_image(50, 33);
  expect_near(decode_jpeg(encode_progressive(image)).value(), image, 12);
}

TEST(Jpeg, GrayBecomesRgb) {
  std::vector<uint8_t> gray(20 * 30);
  for (size_t i = 0; i < gray.size(); ++i) gray[i] = static_cast<uint8_t>(i * 255 / gray.size());
  const Image image = decode_jpeg(encode_special(gray, 20, 30, JCS_GRAYSCALE, false, JCS_GRAYSCALE)).value();
  ASSERT_EQ(image.pixels.size(), gray.size() * 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) ASSERT_NEAR(image.pixels[i], gray[i / 3], 5);
}

// libjpeg writes Adobe's marker with CMYK and YCCK, so samples are light, not ink: R = C K / 255.
TEST(Jpeg, CmykAndYcckBecomeRgb) {
  std::vector<uint8_t> cmyk;
  for (int i = 0; i < 32 * 32; ++i) cmyk.insert(cmyk.end(), {255, 128, 0, 200});
  for (J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
    const Image image = decode_jpeg(encode_special(cmyk, 32, 32, JCS_CMYK, false, stored)).value();
    ASSERT_EQ(image.pixels.size(), 32u * 32 * 3);
    for (size_t i = 0; i < image.pixels.size(); i += 3) {
      ASSERT_NEAR(image.pixels[i], 200, 4);
      ASSERT_NEAR(image.pixels[i + 1], 100, 4);
      ASSERT_NEAR(image.pixels[i + 2], 0, 4);
    }
  }
}

// Without Adobe's marker, inks are stored as they are. Pixels of TensorFlow (tools/golden/cmyk_jpeg.py); Pillow takes
// every CMYK JPEG for Adobe's.
TEST(Jpeg, CmykIsReadAsTensorFlowReadsIt) {
  const std::string folder = core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata");
  core::FileSystem& files = core::local_file_system();
  for (const std::string name : {"cmyk_adobe", "cmyk_plain"}) {
    const std::string file = files.read_file(core::join_path(folder, name + ".jpg"));
    const auto expected = formats::read_npy(*files.open_read(core::join_path(folder, name + ".npy")));
    const Image image = decode_jpeg(std::as_bytes(std::span(file))).value();
    ASSERT_EQ(expected.shape, (std::vector<int64_t>{image.height, image.width, 3}));
    const auto values = expected.values<uint8_t>();
    EXPECT_TRUE(std::equal(values.begin(), values.end(), image.pixels.begin(), image.pixels.end())) << name;
  }
}

// For every kind of file, a crop holds exactly what the whole image holds there.
TEST(Jpeg, CropIsPartOfTheWholeImage) {
  const Image source = noisy_image(75, 90);
  const std::vector<std::vector<std::byte>> files = {encode_jpeg(source, 90, ChromaSubsampling::k420),
                                                     encode_jpeg(source, 90, ChromaSubsampling::k444),
                                                     encode_progressive(source)};
  core::RandomStream random(7, "crops");
  for (const auto& file : files) {
    const Image whole = decode_jpeg(file).value();
    for (int i = 0; i < 200; ++i) {
      const CropWindow crop = random_crop(random, whole.height, whole.width);
      const Image part = decode_jpeg(file, crop).value();
      ASSERT_EQ(part.pixels, part_of(whole, crop).pixels)
          << crop.y << " " << crop.x << " " << crop.height << " " << crop.width;
    }
  }
}

// A smaller DCT is close to the mean of the pixels that it replaces.
TEST(Jpeg, ScaledDecodeIsNearTheMeanOfPixels) {
  const auto file = encode_jpeg(smooth_image(97, 130), 98, ChromaSubsampling::k444);
  const Image whole = decode_jpeg(file).value();
  for (int scale : {2, 4, 8}) {
    const Image small = decode_jpeg(file, {}, {.at_least = {97 / scale, 130 / scale}}).value();
    ASSERT_EQ(small.height, (97 + scale - 1) / scale);
    ASSERT_EQ(small.width, (130 + scale - 1) / scale);
    for (int y = 0; y < 97 / scale; ++y) {
      for (int x = 0; x < 130 / scale; ++x) {
        for (int c = 0; c < 3; ++c) {
          int sum = 0;
          for (int i = 0; i < scale * scale; ++i) {
            sum += whole.pixels[3 * ((y * scale + i / scale) * 130 + x * scale + i % scale) + c];
          }
          ASSERT_NEAR(small.pixels[3 * (y * small.width + x) + c], static_cast<double>(sum) / (scale * scale), 4);
        }
      }
    }
  }
}

// tools/golden/scaled_decode.py: libjpeg-turbo, by way of Pillow.
TEST(Jpeg, ScaledDecodeIsLibjpegTurbos) {
  const auto path = [](const std::string& name) {
    return core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata/" + name);
  };
  for (const std::string image : {"scaled_420", "scaled_444", "scaled_progressive", "scaled_gray"}) {
    const std::string text = core::local_file_system().read_file(path(image + ".jpg"));
    const std::span<const std::byte> file = std::as_bytes(std::span(text));
    for (const int scale : {2, 4, 8}) {
      const std::string name = fmt::format("{}_{}.npy", image, scale);
      const formats::NpyArray golden = formats::read_npy(*core::local_file_system().open_read(path(name)));
      const std::span<const uint8_t> expected = golden.values<uint8_t>();
      const Image actual = decode_jpeg(file, {}, {.at_least = {97 / scale, 130 / scale}}).value();
      ASSERT_EQ(golden.shape, (std::vector<int64_t>{actual.height, actual.width, 3})) << name;
      int64_t others = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(actual.pixels[i], expected[i], 1) << name << " " << i;
        others += actual.pixels[i] != expected[i] ? 1 : 0;
      }
      EXPECT_LE(others, static_cast<int64_t>(expected.size() / 1000)) << name;
    }
  }
}

// The scale is the largest that leaves the window at least as large as asked for.
TEST(Jpeg, ScaledDecodeKeepsTheSizeThatIsNeeded) {
  const auto file = encode_jpeg(smooth_image(200, 300));
  const auto height_of = [&](CropWindow crop, ImageSize at_least) {
    return decode_jpeg(file, crop, {.at_least = at_least}).value().height;
  };
  EXPECT_EQ(height_of({0, 0, 200, 300}, {101, 10}), 200);
  EXPECT_EQ(height_of({0, 0, 200, 300}, {100, 10}), 100);
  EXPECT_EQ(height_of({0, 0, 200, 300}, {50, 75}), 50);
  EXPECT_EQ(height_of({0, 0, 200, 300}, {50, 76}), 100);
  EXPECT_EQ(height_of({0, 0, 200, 300}, {1, 1}), 25);
  EXPECT_EQ(height_of({3, 5, 64, 64}, {32, 32}), 33);  // rows 3 to 66 are halves of 1 to 33
}

TEST(Jpeg, ScaledCropIsPartOfTheScaledWhole) {
  const Image source = noisy_image(75, 90);
  core::RandomStream random(8, "crops");
  for (ChromaSubsampling subsampling : {ChromaSubsampling::k420, ChromaSubsampling::k444}) {
    const auto file = encode_jpeg(source, 90, subsampling);
    for (int scale : {2, 4}) {
      const Image whole = decode_jpeg(file, {}, {.at_least = {75 / scale, 90 / scale}}).value();
      for (int i = 0; i < 100; ++i) {
        CropWindow crop;
        crop.height = scale + static_cast<int>(random.below(75 - scale));
        crop.width = scale + static_cast<int>(random.below(90 - scale));
        crop.y = static_cast<int>(random.below(75 - crop.height + 1));
        crop.x = static_cast<int>(random.below(90 - crop.width + 1));
        const Image part = decode_jpeg(file, crop, {.at_least = {crop.height / scale, crop.width / scale}}).value();
        const int y = crop.y / scale, x = crop.x / scale;
        ASSERT_EQ(part.height, (crop.y + crop.height + scale - 1) / scale - y);
        ASSERT_EQ(part.pixels, part_of(whole, {y, x, part.height, part.width}).pixels)
            << scale << ": " << crop.y << " " << crop.x << " " << crop.height << " " << crop.width;
      }
    }
  }
}

TEST(Jpeg, CropOutsideIsAnError) {
  const auto file = encode_jpeg(smooth_image(20, 20));
  for (const CropWindow crop : {CropWindow{0, 0, 21, 5}, CropWindow{-1, 0, 5, 5}, CropWindow{0, 16, 5, 5},
                                CropWindow{3, 3, 0, 5}, CropWindow{2, 0, 2'147'483'647, 5}}) {
    EXPECT_EQ(decode_jpeg(file, crop).error().code(), ErrorCode::kCorruptData);
  }
}

TEST(Jpeg, TruncatedIsAnError) {
  for (const auto& file : {encode_jpeg(noisy_image(64, 64)), encode_progressive(noisy_image(64, 64))}) {
    for (size_t size : {size_t{2}, size_t{30}, file.size() / 4, file.size() / 2, file.size() - 40}) {
      const auto result = decode_jpeg(std::span(file).first(size));
      ASSERT_FALSE(result.ok()) << size << " of " << file.size();
      EXPECT_EQ(result.error().code(), ErrorCode::kCorruptData);
    }
  }
}

// Every single damaged byte gives pixels or an error, never a crash (this test runs under sanitizers).
TEST(Jpeg, DamagedBytesDoNotCrash) {
  const auto file = encode_jpeg(noisy_image(24, 24));
  for (size_t i = 0; i < file.size(); ++i) {
    auto damaged = file;
    damaged[i] ^= std::byte{0x55};
    const auto result = decode_jpeg(damaged, {}, {.limits = {.max_pixels = 1'000'000}});
    if (result.ok()) {
      EXPECT_FALSE(decode_jpeg(damaged, {}, {.limits = {.max_pixels = 1'000'000}}).value().pixels.empty());
    }
  }
}

// Writes another size into the frame header (SOF0), as a hostile or broken file would have it.
std::vector<std::byte> with_header_size(std::vector<std::byte> file, uint16_t height, uint16_t width) {
  for (size_t i = 0; i + 9 < file.size(); ++i) {
    if (file[i] == std::byte{0xff} && file[i + 1] == std::byte{0xc0}) {
      file[i + 5] = std::byte(height >> 8);
      file[i + 6] = std::byte(height & 255);
      file[i + 7] = std::byte(width >> 8);
      file[i + 8] = std::byte(width & 255);
      return file;
    }
  }
  throw std::logic_error("no SOF0");
}

TEST(Jpeg, HugeHeaderIsRefusedBeforeAnythingIsAllocated) {
  const auto file = with_header_size(encode_jpeg(smooth_image(16, 16)), 65'000, 65'000);
  int64_t allocated = 0;
  DecodeLimits limits;
  limits.before_allocation = [&](int64_t bytes) {
    allocated += bytes;
    throw core::Error(ErrorCode::kNoSpace, "test refuses");
  };
  const auto result = decode_jpeg(file, {}, {.limits = limits});
  ASSERT_FALSE(result.ok());
  EXPECT_STREQ(result.error().what(),
               "image too large: expected at most 178956970 pixels, got 65000 x 65000 in its header; remove the image "
               "from the data set");
  EXPECT_EQ(allocated, 0);

  // The safeguard matters: without the limit, 12 GB would be asked for.
  limits.max_pixels = int64_t{1} << 40;
  EXPECT_THROW(decode_jpeg(file, {}, {.limits = limits}), core::Error);
  EXPECT_EQ(allocated, int64_t{3} * 65'000 * 65'000);
}

// Else a small file would take hours: each scan is a pass over the whole image.
TEST(Jpeg, ThousandsOfScansAreRefused) {
  const std::vector<std::byte> file = encode_progressive(smooth_image(16, 16));
  ASSERT_TRUE(decode_jpeg(file).ok());
  // The first scan, from its marker to the next one.
  const auto marker_from = [&](size_t place, const std::function<bool(std::byte)>& wanted) {
    while (file[place] != std::byte{0xff} || !wanted(file[place + 1])) ++place;
    return place;
  };
  const size_t begin = marker_from(0, [](std::byte code) { return code == std::byte{0xda}; });
  const size_t end = marker_from(begin + 2, [](std::byte code) { return code != std::byte{0}; });
  const auto with_scans = [&](int count) {
    std::vector<std::byte> many(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(begin));
    for (int i = 0; i < count; ++i) {
      many.insert(many.end(), file.begin() + static_cast<std::ptrdiff_t>(begin),
                  file.begin() + static_cast<std::ptrdiff_t>(end));
    }
    many.insert(many.end(), file.begin() + static_cast<std::ptrdiff_t>(end), file.end());
    return many;
  };
  EXPECT_TRUE(decode_jpeg(with_scans(400)).ok());
  const auto refused = decode_jpeg(with_scans(600));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kCorruptData);
  EXPECT_NE(std::string(refused.error().what()).find("more than 500 scans"), std::string::npos);
}

TEST(Jpeg, WidestHeaderIsRefused) {
  // libjpeg's own limit is 65,500 pixels a side.
  const auto file = with_header_size(encode_jpeg(smooth_image(16, 16)), 65'535, 65'535);
  const auto result = decode_jpeg(file);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kCorruptData);
  EXPECT_NE(std::string(result.error().what()).find("65500"), std::string::npos) << result.error().what();
}

TEST(Jpeg, SaysWhatIsUnusual) {
  const Image image = smooth_image(20, 30);
  const std::vector<std::byte> plain = encode_jpeg(image);
  EXPECT_EQ(unusual_jpeg(plain), "");
  EXPECT_EQ(unusual_jpeg(encode_progressive(image)), "");
  const std::vector<uint8_t> gray(20 * 30, 7), cmyk(4 * 20 * 30, 7);
  EXPECT_EQ(unusual_jpeg(encode_special(gray, 20, 30, JCS_GRAYSCALE, false, JCS_GRAYSCALE)), "");
  for (const J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
    EXPECT_EQ(unusual_jpeg(encode_special(cmyk, 20, 30, JCS_CMYK, false, stored)),
              "its colours are neither gray nor YCbCr");
  }
  EXPECT_EQ(unusual_jpeg(encode_special(image.pixels, 20, 30, JCS_RGB, false, JCS_RGB)),
            "its colours are neither gray nor YCbCr");
  const std::vector<std::byte> turned = with_exif(plain, 6);
  EXPECT_EQ(unusual_jpeg(turned, true), "its EXIF data say that it is to be turned");
  EXPECT_EQ(unusual_jpeg(turned), "");
  std::vector<std::byte> longer = plain;
  longer.push_back(std::byte{0});
  EXPECT_EQ(unusual_jpeg(longer), "it ends without an end marker");
  EXPECT_EQ(unusual_jpeg(std::span(plain).first(3)), "it is no JPEG");
  longer[1] = std::byte{0xd9};
  EXPECT_EQ(unusual_jpeg(longer), "it is no JPEG");
}

TEST(Jpeg, EncodingNothingIsAnError) {
  EXPECT_THROW(encode_jpeg({}), core::Error);
  EXPECT_THROW(encode_jpeg({.height = 2, .width = 2, .pixels = {1, 2, 3}}), core::Error);
}

// libjpeg upsamples narrow images otherwise than wide ones, and a narrow window is a narrow image to it.
TEST(Jpeg, NarrowWindowsAreThoseOfTheWholeImage) {
  for (const int width : {5, 30, 33, 35}) {
    for (const ChromaSubsampling chroma : {ChromaSubsampling::k444, ChromaSubsampling::k420}) {
      const std::vector<std::byte> file = encode_jpeg(noisy_image(13, width), 90, chroma);
      const Image whole = decode_jpeg(file).value();
      for (int x = 0; x < width; ++x) {
        for (int columns = 1; columns <= std::min(6, width - x); ++columns) {
          const CropWindow window{4, x, 3, columns};
          EXPECT_EQ(decode_jpeg(file, window).value().pixels, part_of(whole, window).pixels)
              << columns << " columns from " << x << " of " << width;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::data::jpeg_test
