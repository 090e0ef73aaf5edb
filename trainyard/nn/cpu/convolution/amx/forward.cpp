#include <omp.h>

#include "trainyard/nn/cpu/convolution/amx/tiles.h"
#include "trainyard/nn/cpu/convolution/epilogue.h"

namespace trainyard::nn::cpu::amx {
namespace {

constexpr int64_t kPanelBytes = 640 << 10;  // of a thread's share of its second-level cache
constexpr int64_t kMostPixels = 1024;       // of a strip: weights are read once for each
constexpr int64_t kTasksPerThread = 3;

// What a thread computes at a time: `rows` rows of an image's phases, or several `images`, whose pixels lie behind one
// another.
struct Strip {
  int64_t rows, images, row_strips, image_strips;
  int64_t image_pixels;  // in the panel, from an image to the next one
  int64_t plane_pixels;  // from a pair of channel blocks to the next one
  int64_t most_tiles;    // of 16 pixels
  int64_t splits;        // of the output's blocks, where there are too few strips for the threads

  [[gnu::always_inline]] int64_t panel_bytes(const Geometry& g) const {
    return g.in_phase_count * g.in_pairs() * plane_pixels * 64;
  }
  [[gnu::always_inline]] int64_t table_bytes() const { return most_tiles * 17 * 8; }
  [[gnu::always_inline]] int64_t bytes(const Geometry& g) const {
    return panel_bytes(g) + (table_bytes() + 63) / 64 * 64 + 4 * kTileBytes + g.image_row_bytes();
  }
};

Strip strip_of(const Geometry& g, int threads) {
  const int64_t pixel_bytes = g.in_phase_count * g.in_pairs() * 64;
  const int64_t pixels = smaller(kMostPixels, larger(kPanelBytes / pixel_bytes, 64));
  Strip s{};
  s.rows = even_part(g.rows, pixels / g.pitch);
  s.images = s.rows < g.rows ? 1 : even_part(g.batch, pixels / ((g.rows + g.reach_rows) * g.pitch));
  s.row_strips = (g.rows + s.rows - 1) / s.rows;
  s.image_strips = (g.batch + s.images - 1) / s.images;
  s.image_pixels = (s.rows + g.reach_rows) * g.pitch;
  // A tile pair may begin at the last pixel, and its taps lie behind it. An odd number of cache lines keeps channels
  // out of each other's sets.
  s.plane_pixels = (s.images * s.image_pixels + g.reach_columns + 48) | 1;
  s.most_tiles = s.images * (s.image_pixels + 15) / 16 + s.images + 1;
  const int64_t strips = s.row_strips * s.image_strips, pairs = (g.out_blocks + 1) / 2;
  s.splits = smaller(pairs, (kTasksPerThread * threads + strips - 1) / strips);
  if (threads == 1) s.splits = 1;
  return s;
}

// Copies the input that a strip needs: [phase][pair of blocks][image][row][column][32 channels].
void fill_panel(const Forward& a, const Strip& strip, int64_t first_image, int64_t first_row, uint8_t* panel) {
  const Geometry& g = a.shape;
  const int64_t rows = strip.rows + g.reach_rows, block_bytes = g.in_height * g.in_width * 32;
  for (int64_t p = 0; p < g.in_phase_count; ++p) {
    const Phase& phase = g.in_phases[p];
    const Columns columns = columns_of(g, phase);
    const int64_t step = g.in_step_x * 32;
    for (int64_t pair = 0; pair < g.in_pairs(); ++pair) {
      const bool alone = 2 * pair + 1 == g.in_blocks;
      uint8_t* to = panel + (p * g.in_pairs() + pair) * strip.plane_pixels * 64;
      for (int64_t image = first_image; image < first_image + strip.images; ++image) {
        const auto* const block =
            static_cast<const uint8_t*>(a.source) + (image * g.in_blocks + 2 * pair) * block_bytes;
        for (int64_t row = 0; row < rows; ++row, to += g.pitch * 64) {
          const int64_t y = (first_row + g.first_row + row) * g.in_step_y + phase.row;
          if (image >= g.batch || y < 0 || y >= g.in_height) {
            clear(to, g.pitch * 64);
            continue;
          }
          clear(to, columns.begin * 64);
          clear(to + columns.end * 64, (g.pitch - columns.end) * 64);
          const uint8_t* from =
              block + (y * g.in_width + (columns.begin + g.first_column) * g.in_step_x + phase.column) * 32;
          for (int64_t x = columns.begin; x < columns.end; ++x, from += step) {
            const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
            const __m256i high = alone ? _mm256_setzero_si256()
                                       : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + block_bytes));
            _mm512_store_si512(to + x * 64, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
          }
        }
      }
      clear(to, g.reach_columns * 64);  // the zeros behind the last row
    }
  }
}

// The same of an image, whose panel has a window's row for each pixel. `line` has image_row_bytes().
void fill_image_panel(const Forward& a, const Strip& strip, int64_t first_image, int64_t first_row, uint8_t* panel,
                      uint16_t* line) {
  const Geometry& g = a.shape;
  const int64_t rows = strip.rows + g.reach_rows, pairs = g.in_pairs(), plane = strip.plane_pixels * 64;
  for (int64_t p = 0; p < g.in_phase_count; ++p) {
    uint8_t* to = panel + p * pairs * plane;
    for (int64_t image = first_image; image < first_image + strip.images; ++image) {
      for (int64_t row = 0; row < rows; ++row, to += g.pitch * 64) {
        const int64_t y = (first_row + g.first_row + row) * g.in_step_y + g.in_phases[p].row;
        if (image >= g.batch || y < 0 || y >= g.in_height) {
          for (int64_t pair = 0; pair < pairs; ++pair) clear(to + pair * plane, g.pitch * 64);
          continue;
        }
        const auto* const plain = static_cast<const uint16_t*>(a.source);
        fill_image_row(g, plain + image * g.image_channels * g.in_height * g.image_width, y, line);
        for (int64_t pair = 0; pair < pairs; ++pair) {
          for (int64_t x = 0; x < g.columns; ++x) {
            _mm512_store_si512(
                to + pair * plane + x * 64,
                load_elements(line + x * g.image_step * g.image_channels + pair * 32, g.in_channels - pair * 32));
          }
        }
      }
    }
  }
}

// The tiles of a strip's pixels: where each begins in the panel, and where its 16 rows go, in pixels from the first
// image's first one; -1: nowhere.
struct Table {
  int64_t* starts;
  int64_t* targets;
  int64_t tiles;
};

void fill_table(const Geometry& g, const Strip& strip, const Phase& phase, int64_t first_image, int64_t first_row,
                Table& table) {
  const int64_t images = smaller(strip.images, g.batch - first_image);
  const int64_t rows = smaller(strip.rows, g.rows - first_row);
  const int64_t image_pixels = (rows - 1) * g.pitch + g.columns;  // of the panel, with the last row's end
  const int64_t apart = g.out_blocks * g.out_height * g.out_width;
  // Tiles that cross from an image to the next waste the rows between them; others waste the end of the last tile.
  const int64_t together = ((images - 1) * strip.image_pixels + image_pixels + 15) / 16;
  const bool cross = together <= images * ((image_pixels + 15) / 16);
  table.tiles = 0;
  const auto add = [&](int64_t start) __attribute__((always_inline)) {
    bool any = false;
    int64_t* const targets = table.targets + table.tiles * 16;
    int64_t image = start / strip.image_pixels, row = start % strip.image_pixels / g.pitch,
            column = start % strip.image_pixels % g.pitch;
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t y = phase.row + (first_row + row) * g.out_step_y, x = phase.column + column * g.out_step_x;
      const bool inside = image < images && row < rows && y < g.out_height && column < g.columns && x < g.out_width;
      targets[i] = inside ? image * apart + y * g.out_width + x : -1;
      any |= inside;
      if (++column == g.pitch) {
        column = 0;
        if (++row == strip.rows + g.reach_rows) row = 0, ++image;
      }
    }
    if (any) table.starts[table.tiles++] = start;
  };
  if (cross) {
    for (int64_t t = 0; t < together; ++t) add(t * 16);
    return;
  }
  for (int64_t image = 0; image < images; ++image) {
    for (int64_t at = 0; at < image_pixels; at += 16) add(image * strip.image_pixels + at);
  }
}

// Sums of up to two tiles of pixels and two blocks of output channels, into sums[pixels][block].
template <bool two_tiles, bool two_blocks>
[[gnu::always_inline]] inline void multiply(const Geometry& g, const Strip& strip, const Phase& phase,
                                            const uint8_t* pixels, int64_t second, const uint8_t* weights,
                                            int64_t second_weights, float* sums) {
  _tile_zero(0);
  if constexpr (two_blocks) _tile_zero(1);
  if constexpr (two_tiles) _tile_zero(2);
  if constexpr (two_tiles && two_blocks) _tile_zero(3);
  const int64_t pairs = g.in_pairs(), plane = strip.plane_pixels * 64;
  for (int64_t t = phase.first_tap; t < phase.first_tap + phase.taps; ++t) {
    const uint8_t* from = pixels + g.taps[t].phase * pairs * plane + g.taps[t].distance * 64;
    const uint8_t* with = weights + t * pairs * kTileBytes;
    for (int64_t pair = 0; pair < pairs; ++pair, from += plane, with += kTileBytes) {
      _tile_loadd(4, from, 64);
      _tile_loadd(6, with, 64);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (two_blocks) {
        _tile_loadd(7, with + second_weights, 64);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (two_tiles) {
        _tile_loadd(5, from + second, 64);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (two_blocks) _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  _tile_stored(0, sums, 64);
  if constexpr (two_blocks) _tile_stored(1, sums + 256, 64);
  if constexpr (two_tiles) _tile_stored(2, sums + 512, 64);
  if constexpr (two_tiles && two_blocks) _tile_stored(3, sums + 768, 64);
  order_memory();
}

[[gnu::always_inline]] inline void write(const Forward& a, int64_t first_image, int64_t block, const int64_t* targets,
                                         const float* sums) {
  const Geometry& g = a.shape;
  const int64_t channels = g.out_channels - block * kLanes;
  const __mmask16 lanes = lanes_before(channels);
  const Floats bias = a.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes, a.bias + block * kLanes);
  uint16_t* const to =
      static_cast<uint16_t*>(a.output) + (first_image * g.out_blocks + block) * g.out_height * g.out_width * kLanes;
  for (int64_t i = 0; i < 16; ++i) {
    if (targets[i] < 0) continue;
    uint16_t* const pixel = to + targets[i] * kLanes;
    const Floats value = TRAINYARD_ISA::epilogue(a, _mm512_load_ps(sums + i * kLanes) + bias,
                                                 reinterpret_cast<const TRAINYARD_ISA::Bfloat16*>(pixel));
    // Pad lanes are zero whatever the sums are.
    winograd_bf16::store_bfloats(pixel, _mm512_maskz_mov_ps(lanes, value));
  }
}

// Computes output blocks [first, last) of a strip, with an even number of them before the first.
void convolve(const Forward& a, const Strip& strip, int64_t first_image, const Phase& phase, const Table& table,
              const uint8_t* panel, int64_t first, int64_t last, float* sums) {
  const Geometry& g = a.shape;
  const int64_t block_weights = g.window * g.in_pairs() * kTileBytes;
  for (int64_t block = first; block < last; block += 2) {
    const auto* const weights = static_cast<const uint8_t*>(a.weights) + block * block_weights;
    const bool two_blocks = block + 1 < last;
    for (int64_t t = 0; t < table.tiles; t += 2) {
      const uint8_t* const pixels = panel + table.starts[t] * 64;
      const bool two_tiles = t + 1 < table.tiles;
      const int64_t second = two_tiles ? (table.starts[t + 1] - table.starts[t]) * 64 : 0;
      if (two_tiles && two_blocks) {
        multiply<true, true>(g, strip, phase, pixels, second, weights, block_weights, sums);
      } else if (two_tiles) {
        multiply<true, false>(g, strip, phase, pixels, second, weights, block_weights, sums);
      } else if (two_blocks) {
        multiply<false, true>(g, strip, phase, pixels, second, weights, block_weights, sums);
      } else {
        multiply<false, false>(g, strip, phase, pixels, second, weights, block_weights, sums);
      }
      for (int64_t i = 0; i < 1 + int64_t{two_tiles}; ++i) {
        for (int64_t j = 0; j < 1 + int64_t{two_blocks}; ++j) {
          write(a, first_image, block + j, table.targets + (t + i) * 16, sums + i * 512 + j * 256);
        }
      }
    }
  }
}

}  // namespace

int64_t forward_scratch_bytes(const Geometry& geometry, int threads) {
  return threads * strip_of(geometry, threads).bytes(geometry);
}

void forward(const Forward& a) {
  const Geometry& g = a.shape;
  const Strip strip = strip_of(g, a.threads);
  const int64_t strips = strip.row_strips * strip.image_strips, pairs = (g.out_blocks + 1) / 2;
#pragma omp parallel num_threads(a.threads)
  {
    auto* const panel = static_cast<uint8_t*>(a.scratch) + omp_get_thread_num() * strip.bytes(g);
    auto* const sums = reinterpret_cast<float*>(panel + strip.panel_bytes(g));
    auto* const numbers = reinterpret_cast<int64_t*>(sums + 4 * kTileBytes / 4);
    auto* const line = reinterpret_cast<uint16_t*>(numbers) + (strip.table_bytes() + 63) / 64 * 32;
    Table table{.starts = numbers, .targets = numbers + strip.most_tiles, .tiles = 0};
    const TileRegisters registers;
    int64_t filled = -1;
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < strips * strip.splits; ++task) {
      const int64_t place = task / strip.splits, split = task % strip.splits;
      const int64_t image = place / strip.row_strips * strip.images, row = place % strip.row_strips * strip.rows;
      if (place != filled && g.image_channels == 0) fill_panel(a, strip, image, row, panel);
      if (place != filled && g.image_channels != 0) fill_image_panel(a, strip, image, row, panel, line);
      filled = place;
      order_memory();
      for (int64_t p = 0; p < g.out_phase_count; ++p) {
        fill_table(g, strip, g.out_phases[p], image, row, table);
        convolve(a, strip, image, g.out_phases[p], table, panel, pairs * split / strip.splits * 2,
                 smaller(g.out_blocks, pairs * (split + 1) / strip.splits * 2), sums);
      }
    }
  }
}

}  // namespace trainyard::nn::cpu::amx
