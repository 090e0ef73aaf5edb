// Palettes of image files, which may be shorter than the indices in use.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace trainyard::data {

inline constexpr size_t kPaletteColours = 256;
using Palette = std::array<std::array<uint8_t, 3>, kPaletteColours>;  // RGB by index

// Sets the colours after the first `count`, which the file lacks, as Pillow does: black, but grays when the file has no
// colours, or has three or more and they are the grays 0, 1, 2, ...
inline void fill_rest(Palette& palette, size_t count) {
  const auto gray = [](size_t i) {
    const auto value = static_cast<uint8_t>(i);
    return std::array<uint8_t, 3>{value, value, value};
  };
  bool grays = count == 0 || count > 2;
  for (size_t i = 0; i < std::min(count, kPaletteColours); ++i) grays = grays && palette[i] == gray(i);
  for (size_t i = count; i < kPaletteColours; ++i) palette[i] = grays ? gray(i) : std::array<uint8_t, 3>{};
}

}  // namespace trainyard::data
