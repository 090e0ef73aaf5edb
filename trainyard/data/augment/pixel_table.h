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

}  // namespace trainyard::data
