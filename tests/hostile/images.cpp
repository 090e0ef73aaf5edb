// Images: PNG, BMP and JPEG that are made here, whole and damaged, and damaged files of the other formats.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/hostile/hostile.h"

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/codecs/decode.h"
#include "trainyard/data/codecs/jpeg.h"
#include "trainyard/data/codecs/png_writer.h"
#include "trainyard/data/testing/plain_jpeg.h"
#include "trainyard/data/testing/test_images.h"
#include "trainyard/formats/containers/little_endian.h"

namespace trainyard::hostile {
namespace {

using core::ErrorCode;
using data::Image;

constexpr int64_t kMostPixels = 1 << 16;

// Decodes with a limit of pixels that no allocation may exceed.
core::Result<Image> decode(const std::string& content) {
  data::DecodeOptions options;
  options.limits.max_pixels = kMostPixels;
  options.limits.before_allocation = [](int64_t bytes) {
    check(bytes <= 3 * kMostPixels, "memory was asked for beyond the limit: " + std::to_string(bytes));
  };
  return data::decode_image(as_file(content), {}, options);
}

void expect_pixels(const std::string& what, const std::string& content, const Image& expected) {
  core::Result<Image> image = decode(content);
  check(image.ok(), what + ": refused: " + (image.ok() ? "" : image.error().what()));
  check(image.value().height == expected.height && image.value().width == expected.width &&
            image.value().pixels == expected.pixels,
        what + ": other pixels");
}

void expect_corrupt(const std::string& what, const std::string& content) {
  refused(ErrorCode::kCorruptData, what, [&] { static_cast<void>(decode(content).value()); });
}

// Neither the pixels nor an error: wrong pixels.
void expect_pixels_or_error(const std::string& what, const std::string& content, const Image& expected) {
  taken(what, [&] {
    const Image image = decode(content).value();
    check(image.height == expected.height && image.width == expected.width && image.pixels == expected.pixels,
          what + ": wrong pixels");
  });
}

Image any_image(Case& drawn) {
  const int height = static_cast<int>(drawn.between(1, 40)), width = static_cast<int>(drawn.between(1, 40));
  switch (drawn.below(3)) {
    case 0:
      return data::smooth_image(height, width);
    case 1:
      return data::flat_image(height, width, static_cast<uint8_t>(drawn.below(256)));
    default:
      return data::noisy_image(height, width, drawn.draw.next_u64());
  }
}

std::string run_png(Case& drawn) {
  constexpr size_t kBehindPixels = 32;
  constexpr size_t kHeaderSize = 8 + 8;
  const Image image = any_image(drawn);
  const std::string good = as_text(data::encode_png(image));
  std::string content = good;
  switch (drawn.below(5)) {
    case 0:
      expect_pixels("PNG", good, image);
      return "PNG whole";
    case 1:
      content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(good.size()))));
      // Behind the last pixel are the ends of its stream and of its chunk, and the last chunk.
      expect_pixels_or_error("PNG cut to " + std::to_string(content.size()) + " bytes", content, image);
      if (content.size() + kBehindPixels < good.size()) expect_corrupt("PNG cut in its pixels", content);
      return "PNG cut";
    case 2:
      drawn.flip_bit(content);
      expect_pixels_or_error("PNG with a bit flipped", content, image);
      return "PNG bit flipped";
    case 3: {
      // The largest sizes that fit, with a checksum that does not.
      for (size_t i = 0; i < 8; ++i) content[kHeaderSize + i] = static_cast<char>(i % 4 == 0 ? 0x7f : 0xff);
      expect_corrupt("PNG of 2^31 x 2^31 pixels", content);
      return "PNG huge header";
    }
    default:
      content += drawn.bytes(drawn.between(1, 100));
      expect_pixels("PNG with bytes behind it", content, image);
      return "PNG bytes behind";
  }
}

// An uncompressed BMP of 24 bits, from bottom to top.
std::string bmp_of(const Image& image) {
  const uint32_t row = (static_cast<uint32_t>(image.width) * 3 + 3) / 4 * 4;
  std::string content = "BM";
  for (const uint32_t number : {54 + row * image.height, 0U, 54U, 40U}) {
    formats::append_little_endian<uint32_t>(content, number);
  }
  formats::append_little_endian<int32_t>(content, image.width);
  formats::append_little_endian<int32_t>(content, image.height);
  formats::append_little_endian<uint16_t>(content, 1);
  formats::append_little_endian<uint16_t>(content, 24);
  content.append(24, '\0');
  for (int y = image.height - 1; y >= 0; --y) {
    const size_t begin = content.size();
    for (int x = 0; x < image.width; ++x) {
      for (int c = 2; c >= 0; --c)
        content += static_cast<char>(image.pixels[(static_cast<size_t>(y) * image.width + x) * 3 + c]);
    }
    content.resize(begin + row, '\0');
  }
  return content;
}

std::string run_bmp(Case& drawn) {
  constexpr int64_t kHeader = 54;
  Image image = any_image(drawn);
  std::string content = bmp_of(image);
  switch (drawn.below(4)) {
    case 0:
      expect_pixels("BMP", content, image);
      return "BMP whole";
    case 1:
      content.resize(static_cast<size_t>(drawn.between(2, static_cast<int64_t>(content.size()) - 4)));
      expect_corrupt("BMP cut to " + std::to_string(content.size()) + " bytes", content);
      return "BMP cut";
    case 2: {
      const int y = static_cast<int>(drawn.below(image.height)), x = static_cast<int>(drawn.below(image.width));
      const auto value = static_cast<uint8_t>(drawn.below(256));
      image.pixels[(static_cast<size_t>(y) * image.width + x) * 3] = value;
      const size_t row = (static_cast<size_t>(image.width) * 3 + 3) / 4 * 4;
      content[kHeader + static_cast<size_t>(image.height - 1 - y) * row + static_cast<size_t>(x) * 3 + 2] =
          static_cast<char>(value);
      expect_pixels("BMP with another pixel", content, image);
      return "BMP other pixel";
    }
    default: {
      const int32_t huge = std::numeric_limits<int32_t>::max() - static_cast<int32_t>(drawn.below(1 << 20));
      std::string number;
      formats::append_little_endian<int32_t>(number, huge);
      content.replace(drawn.draw.next_bool() ? 18 : 22, 4, number);
      expect_corrupt("BMP of a huge size", content);
      return "BMP huge header";
    }
  }
}

// libjpeg-turbo alone says what the pixels are; data that end too early are an error here.
std::string run_jpeg(Case& drawn) {
  const Image image = any_image(drawn);
  std::string content = as_text(
      data::encode_jpeg(image, static_cast<int>(drawn.between(1, 100)),
                        drawn.draw.next_bool() ? data::ChromaSubsampling::k420 : data::ChromaSubsampling::k444));
  const int64_t changes = drawn.below(5);
  for (int64_t i = 0; i < changes; ++i) {
    switch (drawn.below(4)) {
      case 0:
        content[static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size())))] =
            static_cast<char>(drawn.below(256));
        break;
      case 1:
        content.insert(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))), drawn.bytes(2));
        break;
      case 2:
        content.erase(static_cast<size_t>(drawn.between(2, static_cast<int64_t>(content.size()) - 1)), 1);
        break;
      default:
        drawn.flip_bit(content);
    }
  }
  if (changes > 0 && drawn.below(8) == 0) content.resize(content.size() / 2);
  const data::PlainDecoding plain = data::decode_plainly(as_file(content), kMostPixels);
  if (!content.starts_with("\xff\xd8\xff")) return "JPEG without its signature";
  if (plain.error.empty() && !plain.ends_early) {
    expect_pixels("JPEG", content, plain.image);
    return changes == 0 ? "JPEG whole" : "JPEG damaged, decodes";
  }
  if (plain.error.empty()) {
    // libjpeg fills up what is missing, which is nothing where only the end marker is gone.
    expect_pixels_or_error("JPEG that ends early", content, plain.image);
    return "JPEG ends early";
  }
  expect_corrupt("JPEG that libjpeg refuses", content);
  return "JPEG damaged, refused";
}

// Seeds of the fuzz targets, further damaged: an image of the size that its header says, or an error.
std::string run_seeds(Case& drawn) {
  static const std::vector<std::string> kFiles = [] {
    std::vector<std::string> contents;
    core::FileSystem& files = core::local_file_system();
    for (const char* format : {"gif", "tiff", "webp", "png", "bmp", "jpeg"}) {
      const std::string folder = core::join_path("trainyard/data/testdata/fuzz", format);
      for (const std::string& name : files.list(folder)) {
        contents.push_back(files.read_file(core::join_path(folder, name)));
        if (contents.back().size() < 8) contents.pop_back();
      }
    }
    return contents;
  }();
  std::string content = kFiles[static_cast<size_t>(drawn.below(static_cast<int64_t>(kFiles.size())))];
  for (int64_t i = drawn.below(4); i > 0; --i) drawn.flip_bit(content);
  if (drawn.below(4) == 0) content.resize(static_cast<size_t>(drawn.below(static_cast<int64_t>(content.size()))));
  bool right = false;
  const bool decoded = taken("a damaged image", [&] {
    const Image image = decode(content).value();
    const data::ImageSize size = data::read_image_size(as_file(content)).value();
    right = size == data::ImageSize{image.height, image.width} &&
            image.pixels.size() == static_cast<size_t>(image.height) * image.width * 3;
  });
  check(!decoded || right, "a damaged image has another size than its header says");
  return decoded ? "seed damaged, decodes" : "seed damaged, refused";
}

std::string run_noise(Case& drawn) {
  const std::string content = drawn.bytes(drawn.below(64));
  for (const char* magic : {"\xff\xd8", "\x89P", "GIF", "BM", "II", "MM", "RIFF"}) {
    if (content.starts_with(magic)) return "noise with a signature";
  }
  expect_corrupt("noise", content);
  return "noise";
}

}  // namespace

std::string run_images(Case& drawn) {
  switch (drawn.below(8)) {
    case 0:
    case 1:
      return run_png(drawn);
    case 2:
      return run_bmp(drawn);
    case 3:
    case 4:
      return run_jpeg(drawn);
    case 5:
    case 6:
      return run_seeds(drawn);
    default:
      return run_noise(drawn);
  }
}

}  // namespace trainyard::hostile
