// Images made by formulas, and PNG files of kinds that the library only reads. For tests only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <spng.h>

#include "trainyard/core/random/random.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Waves that JPEG keeps well.
inline Image smooth_image(int height, int width) {
  Image image{.height = height, .width = width};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        image.pixels.push_back(static_cast<uint8_t>(127.5 + 100 * std::sin(0.05 * (y + 2 * c) + 0.04 * x)));
      }
    }
  }
  return image;
}

inline Image noisy_image(int height, int width, uint64_t seed = 1) {
  core::RandomStream random(seed, "noisy_image");
  Image image{.height = height, .width = width};
  image.pixels.resize(size_t{3} * height * width);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random.below(256));
  return image;
}

inline Image flat_image(int height, int width, uint8_t value) {
  return {.height = height, .width = width, .pixels = PooledVector<uint8_t>(size_t{3} * height * width, value)};
}

// Returns a window of at least one pixel inside an image of this size.
inline CropWindow random_crop(core::RandomStream& random, int height, int width) {
  CropWindow crop;
  crop.height = 1 + static_cast<int>(random.below(height));
  crop.width = 1 + static_cast<int>(random.below(width));
  crop.y = static_cast<int>(random.below(height - crop.height + 1));
  crop.x = static_cast<int>(random.below(width - crop.width + 1));
  return crop;
}

inline Image part_of(const Image& image, const CropWindow& crop) {
  Image part{.height = crop.height, .width = crop.width};
  for (int y = 0; y < crop.height; ++y) {
    const auto row = image.pixels.begin() + 3 * (static_cast<ptrdiff_t>(crop.y + y) * image.width + crop.x);
    part.pixels.insert(part.pixels.end(), row, row + 3 * static_cast<ptrdiff_t>(crop.width));
  }
  return part;
}

// A PNG of a colour type (libspng's) that encode_png(Image) does not write, of 8 bits; `pixels` holds its channels.
inline std::vector<std::byte> encode_png(std::span<const uint8_t> pixels, int height, int width, uint8_t color_type) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.height = height;
  header.width = width;
  header.bit_depth = 8;
  header.color_type = color_type;
  spng_set_ihdr(context, &header);
  spng_encode_image(context, pixels.data(), pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  size_t size = 0;
  int error = 0;
  void* file = spng_get_png_buffer(context, &size, &error);
  std::vector<std::byte> result(size);
  if (file != nullptr) std::memcpy(result.data(), file, size);
  std::free(file);
  spng_ctx_free(context);
  return result;
}

}  // namespace trainyard::data
