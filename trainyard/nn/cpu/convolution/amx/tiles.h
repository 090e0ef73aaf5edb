// The common part of the AMX kernels: the tile registers' shapes, and rows of panels.
#pragma once

#include "trainyard/nn/cpu/convolution/amx/amx.h"
#include "trainyard/nn/cpu/convolution/winograd_bf16/tile.h"

namespace trainyard::nn::cpu::amx {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

using winograd_bf16::Floats;
using winograd_bf16::kLanes;
using winograd_bf16::lanes_before;
using winograd_bf16::larger;
using winograd_bf16::load_bfloats;
using winograd_bf16::smaller;

constexpr int64_t kTileBytes = 1024;

// A compiler barrier: the compiler does not know that tile loads and stores access memory.
[[gnu::always_inline]] inline void order_memory() {
  __asm__ volatile("" ::: "memory");
}

// Configures eight tiles of 16 rows of 64 bytes for the calling thread while it lives.
class TileRegisters {
 public:
  [[gnu::always_inline]] TileRegisters() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes_a_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const config;
    order_memory();
    _tile_loadconfig(&config);
  }
  [[gnu::always_inline]] ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// The columns of a panel's row that hold pixels of a phase; those before and after are zeros.
struct Columns {
  int64_t begin, end;
};
[[gnu::always_inline]] inline Columns columns_of(const Geometry& g, const Phase& phase) {
  const int64_t there = (g.in_width - phase.column + g.in_step_x - 1) / g.in_step_x;
  const int64_t begin = smaller(g.pitch, larger(0, -g.first_column));
  return {.begin = begin, .end = larger(begin, smaller(g.pitch, there - g.first_column))};
}

[[gnu::always_inline]] inline void clear(void* from, int64_t bytes) {
  auto* const to = static_cast<uint8_t*>(from);
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64) _mm512_storeu_si512(to + i, _mm512_setzero_si512());
  for (; i < bytes; i += 32) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_setzero_si256());
}

// Writes row y of an image, channels innermost: image_row_bytes().
[[gnu::always_inline]] inline void fill_image_row(const Geometry& g, const uint16_t* image, int64_t y, uint16_t* row) {
  clear(row, g.image_row_bytes());
  for (int64_t c = 0; c < g.image_channels; ++c) {
    const uint16_t* const from = image + (c * g.in_height + y) * g.image_width;
    uint16_t* const to = row + g.image_left * g.image_channels + c;
    for (int64_t x = 0; x < g.image_width; ++x) to[x * g.image_channels] = from[x];
  }
}

// Returns the first `count` of 32 elements, zeros for the others.
[[gnu::always_inline]] inline __m512i load_elements(const uint16_t* from, int64_t count) {
  const auto mask = static_cast<__mmask32>((uint64_t{1} << larger(0, smaller(count, 32))) - 1);
  return _mm512_maskz_loadu_epi16(mask, from);
}

// Returns the size of the parts when `count` is divided evenly into parts of at most `most`; the last one may be
// smaller.
[[gnu::always_inline]] inline int64_t even_part(int64_t count, int64_t most) {
  const int64_t parts = (count + larger(1, most) - 1) / larger(1, most);
  return (count + parts - 1) / parts;
}

}  // namespace
}  // namespace trainyard::nn::cpu::amx
