// The image files of testdata/formats, one of each kind (tools/golden/image_formats.py). For tests only (needs
// TRAINYARD_SOURCE_DIR, which every test program has).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/image/image.h"
#include "trainyard/formats/tensors/npy.h"

namespace trainyard::data {

// "plain.tif" and its pixels, "plain_tif.npy", lie in the folder "tif".
inline std::string format_path(const std::string& name) {
  const std::string folder = core::join_path(TRAINYARD_SOURCE_DIR, "trainyard/data/testdata/formats");
  for (const char* const format : {"bmp", "gif", "tif", "webp"}) {
    if (name.find(std::string(".") + format) != std::string::npos ||
        name.find(std::string("_") + format) != std::string::npos) {
      return core::join_path(core::join_path(folder, format), name);
    }
  }
  throw std::logic_error(name + " is of no format that has a folder");
}

inline std::vector<std::byte> format_file(const std::string& name) {
  const std::string content = core::local_file_system().read_file(format_path(name));
  const auto bytes = std::as_bytes(std::span(content));
  return {bytes.begin(), bytes.end()};
}

inline formats::NpyArray format_pixels(const std::string& name) {
  return formats::read_npy(*core::local_file_system().open_read(format_path(name + ".npy")));
}

// `tolerance`: in levels of 255.
inline void expect_format_pixels(const Image& image, const formats::NpyArray& expected, int tolerance) {
  ASSERT_EQ(expected.shape, (std::vector<int64_t>{image.height, image.width, 3}));
  const auto values = expected.values<uint8_t>();
  int worst = 0;
  for (size_t i = 0; i < values.size(); ++i) worst = std::max(worst, std::abs(int{values[i]} - int{image.pixels[i]}));
  EXPECT_LE(worst, tolerance);
}

// The entry of a tag in the only page of a little-endian TIFF: tag, type, count, value.
inline std::byte* tiff_entry(std::vector<std::byte>& tiff, int tag) {
  const auto number = [&](size_t at) {
    return std::to_integer<size_t>(tiff[at]) | std::to_integer<size_t>(tiff[at + 1]) << 8;
  };
  const size_t page = number(4) | number(6) << 16;
  for (size_t i = 0; i < number(page); ++i) {
    const size_t at = page + 2 + 12 * i;
    if (number(at) == static_cast<size_t>(tag)) return &tiff[at];
  }
  throw std::logic_error("no such tag");
}

}  // namespace trainyard::data
