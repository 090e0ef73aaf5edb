// Layer norm's forward over the channels of each pixel, for a tile of neighbouring pixels at a time. Their sums over
// channels stay in registers, one lane for each channel of a block, until a transposition adds up the lanes. Follows
// the rules of compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/layout/transpose.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Neighbouring pixels of a sample: the first, and how many there are, fewer than usual at the end. The last one is used
// instead of a missing one.
struct Tile {
  int64_t sample, first, count;
  [[gnu::always_inline]] int64_t pixel(int64_t p) const { return p < count ? p : count - 1; }
};

// Returns the sum of the lanes of rows[i] in lane i. Overwrites `rows`.
[[gnu::always_inline]] inline Floats lane_sums(Floats (&rows)[kLanes]) {
  transpose(rows);
#pragma GCC unroll 4
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < half; ++i) rows[i] += rows[i + half];
  }
  return rows[0];
}

// Normalizes a tile: calls put(element, value, lanes with channels) for each block of each pixel.
template <bool whole, typename T, typename Put>
void normalize_tile(const LayerNormForward& a, const Tile& tile, const Put& put) {
  const int64_t blocks = a.shape.blocks(), pixels = a.shape.pixels(), plane = pixels * kLanes;
  const int64_t begin = (tile.sample * blocks * pixels + tile.first) * kLanes;
  const T* const input = static_cast<const T*>(a.input) + begin;
  const auto at = [&](int64_t b, int64_t p) __attribute__((always_inline)) {
    return b * plane + (whole ? p : tile.pixel(p)) * kLanes;
  };
  const Floats channels = fill(static_cast<float>(a.shape.channels));

  Floats sums[kLanes] = {};
  for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 16
    for (int64_t p = 0; p < kLanes; ++p) sums[p] += load(input + at(b, p));
  }
  float mean[kLanes], inverse[kLanes];
  store(mean, lane_sums(sums) / channels);

  Floats squares[kLanes] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const Bits lanes = channel_lanes(a.shape, b);
#pragma GCC unroll 16
    for (int64_t p = 0; p < kLanes; ++p) {
      const Floats offset = keep(load(input + at(b, p)) - fill(mean[p]), lanes);
      squares[p] = multiply_add(offset, offset, squares[p]);
    }
  }
  const Floats variance = lane_sums(squares) / channels;
  store(inverse, fill(1.0F) / square_root(variance + fill(static_cast<float>(a.epsilon))));

  for (int64_t b = 0; b < blocks; ++b) {
    const Bits lanes = channel_lanes(a.shape, b);
    const Floats weight = load_lanes(a.weight + b * kLanes, lanes), bias = load_lanes(a.bias + b * kLanes, lanes);
#pragma GCC unroll 16
    for (int64_t p = 0; p < kLanes; ++p) {
      if (!whole && p >= tile.count) break;
      const Floats value = (load(input + at(b, p)) - fill(mean[p])) * fill(inverse[p]);
      put(begin + at(b, p), multiply_add(value, weight, bias), lanes);
    }
  }
  for (int64_t p = 0; a.mean != nullptr && p < tile.count; ++p) {
    a.mean[tile.sample * pixels + tile.first + p] = mean[p];
    a.inverse_deviation[tile.sample * pixels + tile.first + p] = inverse[p];
  }
}

// Return the tiles of a sample, and the `i`-th tile of a map.
inline int64_t pixel_tiles(const MapShape& shape) {
  return (shape.pixels() + kLanes - 1) / kLanes;
}
inline Tile pixel_tile(const MapShape& shape, int64_t i) {
  const int64_t tiles = pixel_tiles(shape), first = i % tiles * kLanes;
  return {i / tiles, first, smaller(kLanes, shape.pixels() - first)};
}

template <typename T, typename Put>
inline void normalize(const LayerNormForward& a, const Tile& tile, const Put& put) {
  tile.count == kLanes ? normalize_tile<true, T>(a, tile, put) : normalize_tile<false, T>(a, tile, put);
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
