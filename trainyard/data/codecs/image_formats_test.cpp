// Each kind of image file against the pixels that Pillow reads from it (tools/golden/image_formats.py).
#include "trainyard/data/codecs/image_formats.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/random/random.h"
#include "trainyard/core/testing/skip_reasons.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/datasets/image_files.h"
#include "trainyard/data/testing/format_files.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/tensors/npy.h"

namespace trainyard::data::image_formats_test {
namespace {

using ::testing::HasSubstr;

std::string golden_name(std::string file) {
  file[file.rfind('.')] = '_';
  return file;
}

struct Case {
  std::string file;
  int tolerance = 0;  // levels of 255, where rounding is not Pillow's
};

void PrintTo(const Case& of, std::ostream* out) {  // NOLINT(readability-identifier-naming): GoogleTest looks for it
  *out << of.file;
}

class ImageFormats : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const ImageFormat* format = image_format_of(bytes_);
    ASSERT_NE(format, nullptr);
    if (format->built_in()) return;
    // What such a build says instead.
    for (const core::Error& error : {decode_image(bytes_).error(), read_image_size(bytes_).error()}) {
      EXPECT_EQ(error.code(), core::ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr(std::string(format->package)));
      EXPECT_THAT(error.what(), HasSubstr(std::string(format->name)));
    }
    GTEST_SKIP() << core::skip::kNeedsImageFormats;
  }
  const std::vector<std::byte> bytes_ = format_file(GetParam().file);
};

TEST_P(ImageFormats, HaveThePixelsThatPillowReads) {
  const formats::NpyArray expected = format_pixels(golden_name(GetParam().file));
  auto image = decode_image(bytes_);
  ASSERT_TRUE(image.ok()) << image.error().what();
  expect_format_pixels(image.value(), expected, GetParam().tolerance);
  EXPECT_EQ(read_image_size(bytes_).value(), (ImageSize{image.value().height, image.value().width}));
  const CropWindow crop{3, 5, 7, 11};
  EXPECT_EQ(decode_image(bytes_, crop).value().pixels, part_of(image.value(), crop).pixels);
  EXPECT_FALSE(decode_image(bytes_, CropWindow{0, 0, image.value().height + 1, 1}).ok());
}

TEST_P(ImageFormats, AreRefusedBeforeTheyTakeTooMuchMemory) {
  const ImageSize size = read_image_size(bytes_).value();
  int64_t allocated = 0;
  DecodeLimits limits{.max_pixels = int64_t{size.height} * size.width - 1,
                      .before_allocation = [&](int64_t bytes) { allocated += bytes; }};
  EXPECT_THAT(decode_image(bytes_, {}, {.limits = limits}).error().what(), HasSubstr("image too large"));
  EXPECT_EQ(allocated, 0);
  ++limits.max_pixels;
  EXPECT_TRUE(decode_image(bytes_, {}, {.limits = limits}).ok());
  EXPECT_EQ(allocated, 3 * limits.max_pixels);
}

// Every part of a file from its begin is an error, or holds all pixels (but for what follows them).
TEST_P(ImageFormats, AreErrorsWhereTheyAreTruncated) {
  auto whole = decode_image(bytes_);
  for (size_t length = 0; length < bytes_.size(); length += length < 80 ? 1 : 7) {
    auto image = decode_image(std::span(bytes_).first(length));
    if (image.ok()) {
      EXPECT_EQ(image.value().pixels, whole.value().pixels) << length;
      EXPECT_GT(length, bytes_.size() / 3);
    } else {
      EXPECT_EQ(image.error().code(), core::ErrorCode::kCorruptData) << length;
    }
  }
}

// What a damaged file decodes to has the size that its header says, and no memory is touched that is not its own (which
// the sanitizers see).
TEST_P(ImageFormats, SurviveDamage) {
  core::RandomStream random(5, "damage");
  const DecodeLimits limits{.max_pixels = 1 << 16};
  for (int round = 0; round < 400; ++round) {
    std::vector<std::byte> damaged = bytes_;
    for (uint64_t i = 0; i <= random.below(3); ++i) {
      const size_t place = random.below(round % 2 == 0 ? std::min<size_t>(damaged.size(), 96) : damaged.size());
      damaged[place] = static_cast<std::byte>(random.below(256));
    }
    auto image = decode_image(damaged, {}, {.limits = limits});
    if (!image.ok()) continue;
    auto size = read_image_size(damaged);
    ASSERT_TRUE(size.ok());
    EXPECT_EQ(size.value(), (ImageSize{image.value().height, image.value().width}));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Golden, ImageFormats,
    ::testing::Values(Case{"lossy.webp"}, Case{"lossless.webp"}, Case{"lossy_alpha.webp"}, Case{"lossless_alpha.webp"},
                      Case{"gray.webp"}, Case{"animated.webp"}, Case{"turned.webp"}, Case{"palette.gif"},
                      Case{"gray.gif"}, Case{"animated.gif"}, Case{"interlaced.gif"}, Case{"transparent.gif"},
                      Case{"part.gif"}, Case{"part_transparent.gif"}, Case{"beyond.gif"}, Case{"short_palette.gif"},
                      Case{"short_grays.gif"}, Case{"short_palette8.bmp"}, Case{"short_palette8_far.bmp"},
                      Case{"short_palette4.bmp"}, Case{"short_palette1.bmp"}, Case{"short_grays8.bmp"},
                      Case{"rgb24.bmp"}, Case{"palette8.bmp"}, Case{"gray8.bmp"}, Case{"one_bit.bmp"},
                      Case{"rgba32.bmp"}, Case{"top_down.bmp"}, Case{"rgb32.bmp"}, Case{"palette4.bmp"},
                      Case{"rgb565.bmp", 1}, Case{"plain.tif"}, Case{"lzw.tif"}, Case{"deflate.tif"},
                      Case{"packbits.tif"}, Case{"zstd.tif"}, Case{"jpeg.tif"}, Case{"gray.tif"}, Case{"palette.tif"},
                      Case{"one_bit.tif"}, Case{"alpha.tif"}, Case{"cmyk.tif", 1}, Case{"strips.tif"},
                      Case{"tiled.tif"}, Case{"pages.tif"}, Case{"sixteen_bits.tif", 1},
                      Case{"gray_sixteen_bits.tif", 1}, Case{"multiplied_alpha.tif", 1}, Case{"turned.tif"}),
    [](const auto& named) { return golden_name(named.param.file); });

TEST(ImageFormat, AreTurnedWhereThatIsAskedFor) {
  for (const std::string file : {"turned.webp", "turned.tif"}) {
    const std::vector<std::byte> bytes = format_file(file);
    if (!image_format_of(bytes)->built_in()) continue;
    const formats::NpyArray expected = format_pixels(golden_name(file) + "_turned");
    auto image = decode_image(bytes, {}, {.exif_orientation = true});
    ASSERT_TRUE(image.ok()) << file;
    expect_format_pixels(image.value(), expected, 0);
    EXPECT_EQ(read_image_size(bytes, true).value(), (ImageSize{image.value().height, image.value().width})) << file;
    const CropWindow crop{5, 3, 11, 7};
    EXPECT_EQ(decode_image(bytes, crop, {.exif_orientation = true}).value().pixels, part_of(image.value(), crop).pixels)
        << file;
  }
}

TEST(ImageFormat, RunLengthsInABmpAreRefusedByName) {
  const std::vector<std::byte> bytes = format_file("run_lengths.bmp");
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  EXPECT_THAT(decode_image(bytes).error().what(), HasSubstr("run-length coded"));
}

// giflib's own decoder takes it for another code, and gives other pixels.
TEST(ImageFormat, ACodeThatMeansNothingYetIsAnErrorOfAGif) {
  std::vector<std::byte> bytes = format_file("short_palette.gif");
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  constexpr size_t kHeader = 13, kColours = 4 * 3, kFrame = 10, kSizes = 2;
  std::byte* const data = bytes.data() + kHeader + kColours + kFrame + kSizes;
  ASSERT_EQ(data[0], std::byte{0});  // with a bit of the next byte 256, which forgets all codes
  // The third code of nine bits: 300, where 258 is the first one that is defined.
  data[2] = (data[2] & std::byte{3}) | std::byte{300 % 64 << 2};
  data[3] = (data[3] & ~std::byte{7}) | std::byte{300 / 64};
  EXPECT_THAT(decode_image(bytes).error().what(), HasSubstr("its codes are damaged"));
}

// The height asks for more strips than the file names. libtiff would take the file's first bytes for them.
TEST(ImageFormat, ATiffWithoutAllItsStripsIsRefused) {
  std::vector<std::byte> bytes = format_file("plain.tif");
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  constexpr int kHeight = 257, kRowsPerStrip = 278;
  ASSERT_EQ(tiff_entry(bytes, kRowsPerStrip)[8], std::byte{18});
  tiff_entry(bytes, kHeight)[8] = std::byte{40};
  EXPECT_EQ(read_image_size(bytes).value().height, 40);
  EXPECT_THAT(decode_image(bytes).error().what(), HasSubstr("strip 2 of 3 is not in the file"));
}

TEST(ImageFormat, ATiffThatDoesNotSayItsColoursIsRefused) {
  std::vector<std::byte> bytes = format_file("gray.tif");
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  constexpr int kPhotometric = 262;
  constexpr std::byte kThreshholding{7};  // 263 instead of 262, which means nothing here
  tiff_entry(bytes, kPhotometric)[0] = kThreshholding;
  EXPECT_THAT(decode_image(bytes).error().what(), HasSubstr("PhotometricInterpretation is missing"));
}

// Some of libtiff's messages have several lines.
TEST(ImageFormat, WhatIsWrongWithATiffIsOneLine) {
  const std::vector<std::byte> bytes = format_file("refused_jpeg.tif");
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  EXPECT_THAT(decode_image(bytes).error().what(),
              HasSubstr("Improper JPEG sampling factors 2,2 Apparently should be 1,1."));
}

TEST(ImageFormat, KindsOfTiffThatAreNotReadAreNamed) {
  if (!image_format_of(format_file("gray.tif"))->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  constexpr int kBits = 258, kCompression = 259, kPlanes = 284;
  const auto refusal = [](const std::vector<std::byte>& bytes) -> std::string {
    return decode_image(bytes).error().what();
  };
  std::vector<std::byte> deep = format_file("gray.tif");
  tiff_entry(deep, kBits)[8] = std::byte{17};
  EXPECT_THAT(refusal(deep), HasSubstr("17 bits a sample"));
  std::vector<std::byte> thunderscan = format_file("gray.tif");
  tiff_entry(thunderscan, kCompression)[8] = std::byte{0x29};
  tiff_entry(thunderscan, kCompression)[9] = std::byte{0x80};
  EXPECT_THAT(refusal(thunderscan), HasSubstr("compression 32809 is not read here"));
  // The last tag becomes the format of a sample, 339, of floating-point numbers.
  std::vector<std::byte> floats = format_file("gray.tif");
  std::byte* const last = tiff_entry(floats, kPlanes);
  last[0] = std::byte{339 % 256};
  last[8] = std::byte{3};
  EXPECT_THAT(refusal(floats), HasSubstr("sample format 3 is no image's"));
}

// A BMP without its pixels: the file's header, and one of 40 bytes.
struct BmpHeader {
  uint32_t header_bytes = 40;
  int32_t width = 5, height = 2;
  uint32_t bits = 8, compression = 0, colours = 0, pixels_at = 0;

  static void append(std::vector<std::byte>& bytes, uint32_t value, int count) {
    for (int i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(value >> 8 * i & 0xff));
  }
  std::vector<std::byte> build() const {
    std::vector<std::byte> bytes = {std::byte{'B'}, std::byte{'M'}};
    append(bytes, 0, 4);
    append(bytes, 0, 4);
    append(bytes, pixels_at, 4);
    append(bytes, header_bytes, 4);
    append(bytes, static_cast<uint32_t>(width), 4);
    append(bytes, static_cast<uint32_t>(height), 4);
    append(bytes, 1, 2);
    append(bytes, bits, 2);
    append(bytes, compression, 4);
    for (int i = 0; i < 3; ++i) append(bytes, 0, 4);
    append(bytes, colours, 4);
    append(bytes, 0, 4);
    return bytes;
  }
};

std::vector<int> values_of(const Image& image) {
  return {image.pixels.begin(), image.pixels.end()};
}

// Sixteen colours of three bytes, blue first, behind the header of OS/2; the last row of the image comes first.
TEST(ImageFormat, ABmpWithTheHeaderOfOs2) {
  for (const uint32_t pixels_at : {0U, 26U, 74U}) {
    std::vector<std::byte> bytes = {std::byte{'B'}, std::byte{'M'}};
    for (int i = 0; i < 8; ++i) bytes.push_back(std::byte{0});
    BmpHeader::append(bytes, pixels_at, 4);
    BmpHeader::append(bytes, 12, 4);
    BmpHeader::append(bytes, 3, 2);  // width
    BmpHeader::append(bytes, 2, 2);  // height
    BmpHeader::append(bytes, 1, 2);
    BmpHeader::append(bytes, 4, 2);  // bits
    for (uint32_t colour = 0; colour < 16; ++colour) {
      BmpHeader::append(bytes, 10 * colour, 1);
      BmpHeader::append(bytes, 5 * colour, 1);
      BmpHeader::append(bytes, 200 - colour, 1);
    }
    for (const uint32_t row : {0x3012U, 0x10f0U}) BmpHeader::append(bytes, row, 4);
    if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
    EXPECT_EQ(read_image_size(bytes).value(), (ImageSize{2, 3}));
    auto image = decode_image(bytes);
    ASSERT_TRUE(image.ok()) << image.error().what();
    EXPECT_EQ(values_of(image.value()), (std::vector<int>{185, 75, 150, 200, 0, 0, 199, 5, 10,  //
                                                          199, 5, 10, 198, 10, 20, 197, 15, 30}))
        << pixels_at;
  }
}

TEST(ImageFormat, ABmpOfColoursFromTheTopRow) {
  std::vector<std::byte> bytes = BmpHeader{.height = -2, .colours = 3}.build();
  for (const uint32_t colour : {0x010203U, 0x040506U, 0x070809U}) BmpHeader::append(bytes, colour, 4);
  for (const uint32_t four : {0x00010201U, 0U, 0x02000000U, 0x00000001U}) BmpHeader::append(bytes, four, 4);
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  const std::vector<int> expected = {4, 5, 6, 7, 8, 9, 4, 5, 6, 1, 2, 3, 1, 2, 3,  //
                                     1, 2, 3, 1, 2, 3, 1, 2, 3, 7, 8, 9, 4, 5, 6};
  EXPECT_EQ(values_of(decode_image(bytes).value()), expected);
  // Nobody needs what fills up the last row.
  bytes.resize(bytes.size() - 3);
  EXPECT_EQ(values_of(decode_image(bytes).value()), expected);
  bytes.pop_back();
  EXPECT_THAT(decode_image(bytes).error().what(), HasSubstr("it is truncated"));
}

TEST(ImageFormat, HeadersOfABmpThatCannotBeAreNamed) {
  const std::vector<std::byte> good = BmpHeader{}.build();
  if (!image_format_of(good)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  const auto refusal = [](const std::vector<std::byte>& bytes) -> std::string {
    auto size = read_image_size(bytes);
    return size.ok() ? "none" : size.error().what();
  };
  constexpr int kLongest = 536'870'911;
  EXPECT_EQ(refusal(good), "none");
  EXPECT_EQ(refusal(BmpHeader{.width = kLongest, .height = -1}.build()), "none");
  EXPECT_EQ(refusal(BmpHeader{.colours = 65536}.build()), "none");
  for (const BmpHeader& header :
       {BmpHeader{.width = 0}, BmpHeader{.height = 0}, BmpHeader{.width = -5}, BmpHeader{.width = kLongest + 1},
        BmpHeader{.height = kLongest + 1}, BmpHeader{.height = -kLongest - 1}}) {
    EXPECT_THAT(refusal(header.build()), HasSubstr("its size cannot be")) << header.width << " " << header.height;
  }
  EXPECT_THAT(refusal(BmpHeader{.header_bytes = 41}.build()), HasSubstr("its header is of no known kind"));
  EXPECT_THAT(refusal(BmpHeader{.bits = 24, .compression = 4}.build()), HasSubstr("an image of another format"));
  EXPECT_THAT(refusal(BmpHeader{.bits = 24, .compression = 5}.build()), HasSubstr("an image of another format"));
  EXPECT_THAT(refusal(BmpHeader{.compression = 3}.build()), HasSubstr("it has masks and a palette"));
  EXPECT_THAT(refusal(BmpHeader{.bits = 2}.build()), HasSubstr("2 bits a pixel"));
  EXPECT_THAT(refusal(BmpHeader{.colours = 65537}.build()), HasSubstr("a palette of 65537 colours"));
  for (const size_t length : {size_t{25}, size_t{53}}) {
    EXPECT_THAT(refusal({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}),
                HasSubstr("it is truncated"))
        << length;
  }
  EXPECT_EQ(refusal({good.begin(), good.begin() + 54}), "none");
}

TEST(ImageFormat, IsThatOfTheFirstBytes) {
  using namespace std::string_literals;
  const auto name = [](const std::string& text) -> std::string {
    const ImageFormat* const format = image_format_of(std::as_bytes(std::span(text)));
    return format == nullptr ? "none" : std::string(format->name);
  };
  for (const std::string& begin : {"II*\0"s, "MM\0*"s, "II+\0"s, "MM\0+"s}) EXPECT_EQ(name(begin), "TIFF") << begin;
  for (const std::string& begin : {"GIF87a"s, "GIF89a"s}) EXPECT_EQ(name(begin), "GIF");
  EXPECT_EQ(name("RIFF....WEBP"), "WebP");
  EXPECT_EQ(name("BM"), "BMP");
  EXPECT_EQ(name("\xff\xd8"), "JPEG");
  EXPECT_EQ(name("\x89PNG"), "PNG");
  for (const std::string& begin : {"II*"s, "MM*\0"s, "GIF88a"s, "GIF89"s, "RIFF....WAVE"s, "XIFF....WEBP"s, "RIFFWEBP"s,
                                   "B"s, "\xff"s, "\x89PN"s}) {
    EXPECT_EQ(name(begin), "none") << begin;
  }
  EXPECT_EQ(image_extension_names(), ".jpg, .jpeg, .png, .webp, .gif, .bmp, .tif or .tiff");
}

TEST(ImageFormat, TheBuildSaysWhichItReads) {
  size_t optional = 0;
  for (const ImageFormat& format : image_formats()) {
    for (const core::OptionalPart& part : core::build_info().optional_parts) {
      if (part.name != format.name) continue;
      EXPECT_EQ(part.built_in, format.built_in()) << part.name;
      ++optional;
    }
  }
  EXPECT_EQ(optional, 4U);
}

TEST(ImageFormat, AFileOfNoneNamesThemAll) {
  const std::string text = "plain text";
  const core::Error error = decode_image(std::as_bytes(std::span(text))).error();
  EXPECT_EQ(error.code(), core::ErrorCode::kCorruptData);
  EXPECT_THAT(error.what(), HasSubstr("JPEG, PNG, WebP, GIF, BMP or TIFF"));
  EXPECT_THAT(error.what(), HasSubstr("70 6c 61 69"));
}

TEST(ImageFormat, NamesOfFilesAreInAnyCase) {
  for (const char* name : {"a.jpg", "a.JPEG", "a.png", "a.webp", "b.WebP", "a.gif", "a.bmp", "a.TIF", "a.tiff"}) {
    EXPECT_TRUE(is_image_name(name)) << name;
  }
  for (const char* name : {"jpg", "a.jpgx", "a.txt", "tiff", "a.tif.json"}) EXPECT_FALSE(is_image_name(name)) << name;
}

TEST(ImageFormat, TheExtensionIsThatOfTheFirstBytes) {
  EXPECT_EQ(image_extension_of(format_file("lossy.webp")), "webp");
  EXPECT_EQ(image_extension_of(format_file("plain.tif")), "tif");
  EXPECT_EQ(image_extension_of(format_file("palette.gif")), "gif");
  EXPECT_EQ(image_extension_of({}), "jpg");
}

TEST(ImageFormat, KindsOfABmpThatAreRead) {
  if (!image_format_of(BmpHeader{}.build())->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  const auto refusal = [](const BmpHeader& header) -> std::string {
    auto size = read_image_size(header.build());
    return size.ok() ? "none" : size.error().what();
  };
  for (const uint32_t header_bytes : {40U, 52U, 56U, 64U, 108U, 124U}) {
    EXPECT_EQ(refusal({.header_bytes = header_bytes}), "none") << header_bytes;
    for (const uint32_t other : {header_bytes - 1, header_bytes + 1}) {
      EXPECT_THAT(refusal({.header_bytes = other}), HasSubstr("its header is of no known kind")) << other;
    }
  }
  for (const uint32_t bits : {1U, 4U, 8U, 16U, 24U, 32U}) {
    EXPECT_EQ(refusal({.bits = bits}), "none") << bits;
    for (const uint32_t compression : {1U, 2U}) {
      EXPECT_THAT(refusal({.bits = bits, .compression = compression}), HasSubstr("run-length coded"));
    }
    for (const uint32_t masks : {3U, 6U}) {
      EXPECT_THAT(refusal({.bits = bits, .compression = masks}),
                  bits <= 8 ? HasSubstr("it has masks and a palette") : HasSubstr("none"))
          << bits;
    }
  }
}

// Sixteen colours are said to be there. The file ends with the fourth of them, and its pixels are bytes of the colours.
TEST(ImageFormat, ABmpThatEndsInsideOfItsPalette) {
  std::vector<std::byte> bytes = BmpHeader{.colours = 16, .pixels_at = 56}.build();
  for (const uint32_t byte : {9U, 8U, 3U, 2U, 1U, 0U, 3U, 7U, 6U, 5U, 0U, 1U, 2U, 3U, 1U}) {
    BmpHeader::append(bytes, byte, 1);
  }
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  auto image = decode_image(bytes);
  ASSERT_TRUE(image.ok()) << image.error().what();
  EXPECT_EQ(values_of(image.value()), (std::vector<int>{3, 8, 9, 3, 0, 1, 0, 5, 6, 1, 3, 2, 3, 0, 1,  //
                                                        1, 3, 2, 0, 5, 6, 3, 0, 1, 3, 8, 9, 1, 3, 2}));
}

TEST(ImageFormat, AGifWithoutAFrameIsRefused) {
  std::vector<std::byte> bytes;
  for (const char c : std::string("GIF89a")) bytes.push_back(static_cast<std::byte>(c));
  for (const int value : {5, 0, 4, 0, 0, 0, 0, 0x3b}) bytes.push_back(static_cast<std::byte>(value));
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  EXPECT_THAT(decode_image(bytes).error().what(), HasSubstr("it holds no frame"));
  EXPECT_THAT(read_image_size(bytes).error().what(), HasSubstr("it holds no frame"));
}

// libtiff says two things of a file that ends with its header; the first one tells more.
TEST(ImageFormat, TheFirstProblemOfATiffIsTold) {
  std::vector<std::byte> bytes;
  for (const int value : {0x49, 0x49, 42, 0, 8, 0, 0, 0}) bytes.push_back(static_cast<std::byte>(value));
  if (!image_format_of(bytes)->built_in()) GTEST_SKIP() << core::skip::kNeedsImageFormats;
  EXPECT_THAT(decode_image(bytes).error().what(), HasSubstr("Can not read TIFF directory count"));
}

}  // namespace
}  // namespace trainyard::data::image_formats_test
