#include <omp.h>

#include "trainyard/nn/cpu/convolution/amx/transpose.h"
#include "trainyard/nn/cpu/convolution/bias_gradient.h"

namespace trainyard::nn::cpu::amx {
namespace {

constexpr int64_t kUnitBytes = 1280 << 10;  // of the pixels and gradients that all threads read: less than an L2 cache
constexpr int64_t kMostPixels = 4096;
constexpr int64_t kDepth = 32;  // pixels that one product of tiles sums over

// What all threads work on at once: `rows` rows of an image, or several `images`. Follows from the shape alone, and so
// does the order of all sums.
struct Unit {
  int64_t rows, images, row_units, image_units;
  int64_t image_pixels;   // from an image to the next one
  int64_t pixels;         // of gradients, a multiple of kDepth
  int64_t source_pixels;  // of a channel of the transposed input

  [[gnu::always_inline]] int64_t source_bytes(const Geometry& g) const {
    return g.in_phase_count * g.in_blocks * kLanes * source_pixels * 2;
  }
  [[gnu::always_inline]] int64_t gradient_bytes(const Geometry& g) const { return g.out_blocks * kLanes * pixels * 2; }
  [[gnu::always_inline]] int64_t bytes(const Geometry& g) const { return source_bytes(g) + gradient_bytes(g); }
  // Memory of one block of channels before it is transposed.
  [[gnu::always_inline]] int64_t line_bytes() const { return source_pixels * 32; }
  [[gnu::always_inline]] int64_t thread_bytes(const Geometry& g) const { return line_bytes() + g.image_row_bytes(); }
};

Unit unit_of(const Geometry& g, int64_t rows, int64_t images) {
  Unit u{.rows = rows, .images = images};
  u.row_units = (g.rows + rows - 1) / rows;
  u.image_units = (g.batch + images - 1) / images;
  u.image_pixels = (rows + g.reach_rows) * g.pitch;
  const int64_t last = (images - 1) * u.image_pixels + (rows - 1) * g.pitch + g.columns;
  u.pixels = (last + kDepth - 1) / kDepth * kDepth;
  // An odd number of cache lines keeps a tile's rows out of each other's sets.
  u.source_pixels = ((u.pixels + g.reach_rows * g.pitch + g.reach_columns + kDepth - 1) / kDepth | 1) * kDepth;
  return u;
}

// Returns the unit with the least to compute among those that fit the cache; of equals the largest.
Unit best_unit(const Geometry& g) {
  int64_t rows = g.rows;
  while (rows > 1) {
    const Unit u = unit_of(g, rows, 1);
    if (u.bytes(g) <= kUnitBytes && u.pixels <= kMostPixels) break;
    rows = even_part(g.rows, rows - 1);
  }
  Unit best = unit_of(g, rows, 1);
  if (rows < g.rows) return best;
  for (int64_t images = 2; images <= g.batch; ++images) {
    const Unit u = unit_of(g, rows, images);
    if (u.bytes(g) > kUnitBytes || u.pixels > kMostPixels) break;
    if (u.image_units * u.pixels <= best.image_units * best.pixels) best = u;
  }
  return best;
}

// Writes block `block` of the input's phase, [pixel of the panel][16 channels], with its zero padding.
void fill_source(const BackwardWeights& a, const Unit& unit, const Phase& phase, int64_t block, int64_t first_image,
                 int64_t first_row, uint8_t* line) {
  const Geometry& g = a.shape;
  const Columns columns = columns_of(g, phase);
  const int64_t step = g.in_step_x * 32;
  uint8_t* to = line;
  for (int64_t image = first_image; image < first_image + unit.images; ++image) {
    const auto* const from_block =
        static_cast<const uint8_t*>(a.source) + (image * g.in_blocks + block) * g.in_height * g.in_width * 32;
    for (int64_t row = 0; row < unit.rows + g.reach_rows; ++row, to += g.pitch * 32) {
      const int64_t y = (first_row + g.first_row + row) * g.in_step_y + phase.row;
      if (image >= g.batch || y < 0 || y >= g.in_height) {
        clear(to, g.pitch * 32);
        continue;
      }
      clear(to, columns.begin * 32);
      clear(to + columns.end * 32, (g.pitch - columns.end) * 32);
      const uint8_t* from =
          from_block + (y * g.in_width + (columns.begin + g.first_column) * g.in_step_x + phase.column) * 32;
      for (int64_t x = columns.begin; x < columns.end; ++x, from += step) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + x * 32),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
      }
    }
  }
  clear(to, line + unit.line_bytes() - to);
}

// The same of an image, whose pixels are rows of a window.
void fill_image(const BackwardWeights& a, const Unit& unit, const Phase& phase, int64_t block, int64_t first_image,
                int64_t first_row, uint8_t* line) {
  const Geometry& g = a.shape;
  auto* const pixels = reinterpret_cast<uint16_t*>(line + unit.line_bytes());
  uint8_t* to = line;
  for (int64_t image = first_image; image < first_image + unit.images; ++image) {
    for (int64_t row = 0; row < unit.rows + g.reach_rows; ++row, to += g.pitch * 32) {
      const int64_t y = (first_row + g.first_row + row) * g.in_step_y + phase.row;
      if (image >= g.batch || y < 0 || y >= g.in_height) {
        clear(to, g.pitch * 32);
        continue;
      }
      const auto* const plain = static_cast<const uint16_t*>(a.source);
      fill_image_row(g, plain + image * g.image_channels * g.in_height * g.image_width, y, pixels);
      for (int64_t x = 0; x < g.columns; ++x) {
        const __m512i elements = load_elements(pixels + x * g.image_step * g.image_channels + block * kLanes,
                                               smaller(kLanes, g.in_channels - block * kLanes));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + x * 32), _mm512_castsi512_si256(elements));
      }
    }
  }
  clear(to, line + unit.line_bytes() - to);
}

// Writes block `block` of the gradients in the same way. What lies between rows is zero, and so counts for nothing.
void fill_gradient(const BackwardWeights& a, const Unit& unit, int64_t block, int64_t first_image, int64_t first_row,
                   uint8_t* line) {
  const Geometry& g = a.shape;
  const int64_t end = unit.pixels * 32;
  int64_t at = 0;
  for (int64_t image = first_image; image < first_image + unit.images; ++image) {
    const auto* const from = static_cast<const uint8_t*>(a.output_gradient) +
                             (image * g.out_blocks + block) * g.out_height * g.out_width * 32;
    for (int64_t row = 0; row < unit.rows + g.reach_rows && at < end; ++row, at += g.pitch * 32) {
      const int64_t y = first_row + row;
      const bool inside = image < g.batch && row < unit.rows && y < g.out_height;
      const int64_t bytes = inside ? g.out_width * 32 : 0;
      for (int64_t x = 0; x < bytes; x += 32) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(line + at + x),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + y * g.out_width * 32 + x)));
      }
      clear(line + at + bytes, smaller(end - at, g.pitch * 32) - bytes);
    }
  }
  if (at < end) clear(line + at, end - at);
}

// Two pixels of a channel block become 16 pairs, one for each channel.
[[gnu::always_inline]] inline __m512i pairs_of(const uint8_t* two_pixels) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), _mm512_loadu_si512(two_pixels));
}

// Prepares a unit: [phase][block][16 channels][pixel] of the input, [block][pair of pixels][16 channels][2] of the
// gradients.
void prepare(const BackwardWeights& a, const Unit& unit, int64_t image, int64_t row, uint8_t* line, uint8_t* sources,
             uint8_t* gradients) {
  const Geometry& g = a.shape;
  const int64_t source_blocks = g.in_phase_count * g.in_blocks;
#pragma omp for schedule(dynamic)
  for (int64_t task = 0; task < source_blocks + g.out_blocks; ++task) {
    if (task >= source_blocks) {
      const int64_t block = task - source_blocks;
      fill_gradient(a, unit, block, image, row, line);
      uint8_t* const to = gradients + block * unit.pixels * 32;
      for (int64_t at = 0; at < unit.pixels * 32; at += 64) _mm512_storeu_si512(to + at, pairs_of(line + at));
      continue;
    }
    const auto fill = g.image_channels == 0 ? fill_source : fill_image;
    fill(a, unit, g.in_phases[task / g.in_blocks], task % g.in_blocks, image, row, line);
    uint8_t* const to = sources + task * unit.source_pixels * 32;
    for (int64_t pixel = 0; pixel < unit.source_pixels; pixel += kDepth) {
      __m512i rows[16];
      for (int64_t i = 0; i < 16; ++i) rows[i] = pairs_of(line + pixel * 32 + i * 64);
      transpose(rows);
      for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + (i * unit.source_pixels + pixel) * 2, rows[i]);
    }
  }
}

// Adds a unit's products to up to two by two tiles of the gradient.
template <bool two_inputs, bool two_outputs>
[[gnu::always_inline]] inline void multiply(bool fresh, int64_t pixels, const uint8_t* source, int64_t source_pitch,
                                            int64_t second_source, const uint8_t* gradient, int64_t second_gradient,
                                            float* sums, int64_t next_input) {
  if (fresh) {
    _tile_zero(0);
    if constexpr (two_outputs) _tile_zero(1);
    if constexpr (two_inputs) _tile_zero(2);
    if constexpr (two_inputs && two_outputs) _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    if constexpr (two_outputs) _tile_loadd(1, sums + 256, 64);
    if constexpr (two_inputs) _tile_loadd(2, sums + next_input, 64);
    if constexpr (two_inputs && two_outputs) _tile_loadd(3, sums + next_input + 256, 64);
  }
  for (int64_t at = 0; at < pixels; at += kDepth, source += 2 * kDepth, gradient += kTileBytes) {
    _tile_loadd(4, source, source_pitch);
    _tile_loadd(6, gradient, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (two_outputs) {
      _tile_loadd(7, gradient + second_gradient, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (two_inputs) {
      _tile_loadd(5, source + second_source, source_pitch);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (two_outputs) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, 64);
  if constexpr (two_outputs) _tile_stored(1, sums + 256, 64);
  if constexpr (two_inputs) _tile_stored(2, sums + next_input, 64);
  if constexpr (two_inputs && two_outputs) _tile_stored(3, sums + next_input + 256, 64);
}

void multiply_unit(const BackwardWeights& a, const Unit& unit, bool fresh, const uint8_t* sources,
                   const uint8_t* gradients) {
  const Geometry& g = a.shape;
  const int64_t in_pairs = g.in_pairs(), out_pairs = (g.out_blocks + 1) / 2;
  const int64_t source_block = unit.source_pixels * 32, gradient_block = unit.pixels * 32;
  order_memory();
  // Taps of the same channels follow one another: they read the same pixels.
#pragma omp for schedule(guided)
  for (int64_t task = 0; task < in_pairs * out_pairs * g.window; ++task) {
    const int64_t t = task % g.window, out = task / g.window % out_pairs * 2, in = task / g.window / out_pairs * 2;
    const Tap& tap = g.taps[t];
    const uint8_t* const source = sources + (tap.phase * g.in_blocks + in) * source_block + tap.distance * 2;
    const uint8_t* const gradient = gradients + out * gradient_block;
    float* const sums = a.gradient + ((t * g.in_blocks + in) * g.out_blocks + out) * 256;
    const int64_t pitch = unit.source_pixels * 2, next_input = g.out_blocks * 256;
    const bool two_inputs = in + 1 < g.in_blocks, two_outputs = out + 1 < g.out_blocks;
    if (two_inputs && two_outputs) {
      multiply<true, true>(fresh, unit.pixels, source, pitch, source_block, gradient, gradient_block, sums, next_input);
    } else if (two_inputs) {
      multiply<true, false>(fresh, unit.pixels, source, pitch, source_block, gradient, gradient_block, sums,
                            next_input);
    } else if (two_outputs) {
      multiply<false, true>(fresh, unit.pixels, source, pitch, source_block, gradient, gradient_block, sums,
                            next_input);
    } else {
      multiply<false, false>(fresh, unit.pixels, source, pitch, source_block, gradient, gradient_block, sums,
                             next_input);
    }
  }
  order_memory();
}

}  // namespace

int64_t backward_weights_scratch_bytes(const Geometry& geometry, int threads) {
  const Unit unit = best_unit(geometry);
  return unit.bytes(geometry) + threads * unit.thread_bytes(geometry);
}

void backward_weights(const BackwardWeights& a) {
  const Geometry& g = a.shape;
  const Unit unit = best_unit(g);
  auto* const sources = static_cast<uint8_t*>(a.scratch);
  uint8_t* const gradients = sources + unit.source_bytes(g);
#pragma omp parallel num_threads(a.threads)
  {
    uint8_t* const line = gradients + unit.gradient_bytes(g) + omp_get_thread_num() * unit.thread_bytes(g);
    const TileRegisters registers;
    for (int64_t image = 0; image < g.batch; image += unit.images) {
      for (int64_t row = 0; row < g.rows; row += unit.rows) {
        prepare(a, unit, image, row, line, sources, gradients);
        multiply_unit(a, unit, image == 0 && row == 0, sources, gradients);
      }
    }
    if (a.bias_gradient != nullptr) {
      TRAINYARD_ISA::sum_bias_gradients<1, TRAINYARD_ISA::Bfloat16>(
          {.batch = g.batch,
           .blocks = g.out_blocks,
           .pixels = g.out_height * g.out_width,
           .together = g.out_width,
           .gradient = static_cast<const TRAINYARD_ISA::Bfloat16*>(a.output_gradient),
           .sums = a.bias_gradient,
           .count = g.out_channels});
    }
  }
}

}  // namespace trainyard::nn::cpu::amx
