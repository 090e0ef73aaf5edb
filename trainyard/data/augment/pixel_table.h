// Functions of single values of an image, applied by a table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "trainyard/data/augment/augment_ops.h"

namespace trainyard::data {

using PixelTable = std::array<uint8_t, 256>;

// Returns function(0) to function(255).
template <typename Function>
PixelTable table_of(Function function) {
  PixelTable table;
  for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = function(i);
  return table;
}

inline void look_up(const PixelTable& table, uint8_t* pixels, int64_t count) {
  for (int64_t i = 0; i < count; ++i) pixels[i] = table[pixels[i]];
}

// Applies the same function to every value.
template <typename Function>
void map_all(PlanarImage& image, Function function) {
  look_up(table_of(function), image.pixels.data(), 3 * image.plane());
}

// Replaces each value by function(value, its smoothed one), as Pillow's ImageFilter.SMOOTH: the middle weighs 5, its
// neighbours 1, and values of the edge stay.
template <typename Function>
void map_smoothed(PlanarImage& image, Function function) {
  const int height = image.height, width = image.width;
  if (height <= 2 || width <= 2) return;
  const PooledVector<uint8_t> source = image.pixels;
  for (int c = 0; c < 3; ++c) {
    for (int y = 1; y < height - 1; ++y) {
      const uint8_t* row = source.data() + c * image.plane() + static_cast<int64_t>(y) * width;
      uint8_t* out = image.pixels.data() + (row - source.data());
      for (int x = 1; x < width - 1; ++x) {
        const int above = row[x - 1 - width] + row[x - width] + row[x + 1 - width];
        const int below = row[x - 1 + width] + row[x + width] + row[x + 1 + width];
        const int sum = above + below + row[x - 1] + 5 * row[x] + row[x + 1];
        out[x] = function(row[x], (2 * sum + 13) / 26);  // sum / 13, rounded
      }
    }
  }
}

}  // namespace trainyard::data
