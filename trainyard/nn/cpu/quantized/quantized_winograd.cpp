// A thread's tiles go through the three stages in chunks that stay in its second-level cache: transformed pixels
// (16 bits), products (32 bits), outputs. Where a map has few tiles and many weights, threads share out the weights
// instead of the tiles.
#include "trainyard/nn/cpu/quantized/quantized_winograd.h"

#include <omp.h>

#include "trainyard/nn/cpu/quantized/finish.h"
#include "trainyard/nn/cpu/quantized/multiply.h"
#include "trainyard/nn/cpu/quantized/winograd_transforms.h"
#include "trainyard/nn/cpu/simd/thread_scratch.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

constexpr int kSide = kWinogradSide;
constexpr int64_t kPoints = QuantizedConvolution::kWinogradPoints, kTile = QuantizedConvolution::kWinogradTile;
constexpr int64_t kUnit = kQuantizedTile;  // tiles that are multiplied at a time
constexpr int64_t kPair = 2 * kLanes;      // channels of a pair of blocks: 16 bits each fill a register

// Transformed pixels lie as [unit][pair of blocks][point][tile][channel], products as
// [unit][output block][point][tile][lane], a cache line further from one pair or block to the next, so that the numbers
// of a point are in different sets of the cache.
constexpr int64_t kPixelStep = kPoints * kUnit * kPair + 32;
constexpr int64_t kProductStep = kPoints * kUnit * kLanes + 16;

constexpr int64_t kPixelBytes = 448 << 10, kProductBytes = 224 << 10, kMostUnits = 8;
constexpr int64_t kFewWeights = 1 << 20;  // bytes, which stay in a thread's cache with all else

int64_t divided_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

// How the work is divided.
struct Work {
  int64_t tiles, pairs, blocks;  // in all
  int64_t units;                 // of a chunk
  int64_t part;                  // output blocks whose products are kept
  bool shares_weights;           // all tiles are one chunk of all threads

  explicit Work(const QuantizedConvolution& a)
      : tiles(a.tiles()), pairs(a.block_pairs()), blocks(a.output_shape.blocks()) {
    const int64_t unit_bytes = pairs * kPixelStep * 2, all_units = divided_up(tiles, kUnit);
    shares_weights = a.threads > 1 && a.packed_bytes() > kFewWeights && all_units * unit_bytes <= kPixelBytes;
    units = shares_weights ? all_units
                           : smaller(smaller(larger(kPixelBytes / unit_bytes, 2), kMostUnits),
                                     divided_up(divided_up(tiles, a.threads), kUnit));
    units = larger(units, 1);
    const int64_t fitting = kProductBytes / (units * kProductStep * 4) / kQuantizedPanelBlocks * kQuantizedPanelBlocks;
    part = smaller(larger(fitting, kQuantizedPanelBlocks), blocks);
  }
  int64_t pixel_bytes() const { return units * pairs * kPixelStep * 2; }
  int64_t product_bytes() const { return units * part * kProductStep * 4; }
};

// The tiles of a chunk, which are divided evenly among its units.
struct Chunk {
  int64_t first, tiles;

  int64_t units() const { return divided_up(tiles, kUnit); }
  int64_t begin(int64_t unit) const { return first + tiles * unit / units(); }
  int64_t count(int64_t unit) const { return begin(unit + 1) - begin(unit); }
};

struct TilePlace {
  int64_t sample, row, column;  // of the first output
};

TilePlace place_of(const QuantizedConvolution& a, int64_t tile) {
  const int64_t columns = a.tile_columns(), in_sample = a.tile_rows() * columns;
  return {.sample = tile / in_sample, .row = tile % in_sample / columns * kTile, .column = tile % columns * kTile};
}

// Returns the bytes of two pixels of two blocks.
[[gnu::always_inline]] inline Shorts load_pair(const uint8_t* low, const uint8_t* high) {
#if defined(TRAINYARD_KERNELS_AVX512)
  const __m256i both =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
                              _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
  return __builtin_bit_cast(Shorts, _mm512_cvtepu8_epi16(both));
#else
  const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(low));
  const __m128 both = _mm_loadh_pi(_mm_castsi128_ps(first), reinterpret_cast<const __m64*>(high));
  return __builtin_bit_cast(Shorts, _mm256_cvtepu8_epi16(_mm_castps_si128(both)));
#endif
}

// Reads load(row, column) of a tile's pixels and writes the 36 transformed ones, kUnit * kPair apart.
template <typename Load>
[[gnu::always_inline]] inline void transform_tile(const Load& load_pixel, uint16_t* to) {
  alignas(64) Shorts columns[kSide][kSide];
#pragma GCC unroll 6
  for (int j = 0; j < kSide; ++j) {
    Shorts pixels[kSide], made[kSide];
#pragma GCC unroll 6
    for (int i = 0; i < kSide; ++i) pixels[i] = load_pixel(i, j);
    transform_pixels(pixels, made);
#pragma GCC unroll 6
    for (int i = 0; i < kSide; ++i) columns[i][j] = made[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kSide; ++i) {
    Shorts made[kSide];
    transform_pixels(columns[i], made);
#pragma GCC unroll 6
    for (int j = 0; j < kSide; ++j) store_ints(to + (i * kSide + j) * kUnit * kPair, __builtin_bit_cast(Ints, made[j]));
  }
}

// The pixels of a tile: by their distances from a block's first byte, which are negative outside of the image.
struct TilePixels {
  int64_t sample;
  bool inside;  // all of them
  int64_t at[kPoints];
};

TilePixels pixels_of(const QuantizedConvolution& a, int64_t tile) {
  const TilePlace place = place_of(a, tile);
  TilePixels pixels{.sample = place.sample, .inside = true, .at = {}};
  for (int64_t k = 0; k < kPoints; ++k) {
    const int64_t row = place.row + k / kSide - a.window.top, column = place.column + k % kSide - a.window.left;
    const bool inside = row >= 0 && row < a.input_shape.height && column >= 0 && column < a.input_shape.width;
    pixels.at[k] = inside ? (row * a.input_shape.width + column) * kLanes : -1;
    pixels.inside &= inside;
  }
  return pixels;
}

// Transforms the pixels of a chunk, in the pairs of blocks [first_pair, end_pair).
void transform_chunk(const QuantizedConvolution& a, const Work& work, const Chunk& chunk, int64_t first_pair,
                     int64_t end_pair, uint16_t* to) {
  const int64_t blocks = a.input_shape.blocks(), plane = a.input_shape.pixels() * kLanes,
                row = a.input_shape.width * kLanes;
  uint8_t padding[kLanes];
  __builtin_memset(padding, a.input_zero, kLanes);
  for (int64_t unit = 0; unit < chunk.units(); ++unit) {
    TilePixels tiles[kUnit];
    const int64_t count = chunk.count(unit);
    for (int64_t t = 0; t < count; ++t) tiles[t] = pixels_of(a, chunk.begin(unit) + t);
    for (int64_t pair = first_pair; pair < end_pair; ++pair) {
      // The last block has no partner where their number is odd; then it is its own, multiplied with zeros.
      const int64_t other = 2 * pair + 1 < blocks ? plane : 0;
      for (int64_t t = 0; t < count; ++t) {
        const TilePixels& tile = tiles[t];
        const uint8_t* const block = a.input + (tile.sample * blocks + 2 * pair) * plane;
        uint16_t* const made = to + (unit * work.pairs + pair) * kPixelStep + t * kPair;
        if (tile.inside) {
          const uint8_t* const from = block + tile.at[0];
          transform_tile(
              [&](int i, int j) __attribute__((always_inline)) {
                return load_pair(from + i * row + j * kLanes, from + other + i * row + j * kLanes);
              },
              made);
        } else {
          transform_tile(
              [&](int i, int j) __attribute__((always_inline)) {
                const int64_t at = tile.at[i * kSide + j];
                return at < 0 ? load_pair(padding, padding) : load_pair(block + at, block + at + other);
              },
              made);
        }
      }
    }
  }
}

template <int blocks>
void multiply_panel(const Work& work, const Chunk& chunk, int64_t point, const int16_t* weights, const int16_t* pixels,
                    int32_t* products) {
  constexpr int32_t kZeros[kQuantizedPanelBlocks * kLanes] = {};
  constexpr int64_t kNoPlace = 0;
  const Multiply<DotOfPairs> multiply{.weights = weights,
                                      .in_blocks = work.pairs,
                                      .block_step = kPixelStep,
                                      .places = &kNoPlace,
                                      .window = 1,
                                      .offsets = kZeros};
  for (int64_t unit = 0; unit < chunk.units(); ++unit) {
    multiply_row<DotOfPairs, kPair, blocks, Terms::kBlocks>(
        multiply, chunk.count(unit), pixels + unit * work.pairs * kPixelStep + point * kUnit * kPair,
        StoreSumsApart{products + unit * work.part * kProductStep + point * kUnit * kLanes, kProductStep});
  }
}

// Multiplies a chunk's pixels with the weights of the output blocks [first, end).
void multiply_chunk(const QuantizedConvolution& a, const Work& work, const Chunk& chunk, int64_t first, int64_t end,
                    const int16_t* pixels, int32_t* products) {
  const auto* const weights = reinterpret_cast<const int16_t*>(a.weights);
  const int64_t of_block = work.pairs * kPair * kLanes;
  for (int64_t point = 0; point < kPoints; ++point) {
    for (int64_t block = first; block < end; block += kQuantizedPanelBlocks) {
      const int16_t* const panel = weights + (point * work.blocks + block) * of_block;
      int32_t* const to = products + (block - first) * kProductStep;
      if (work.blocks - block >= kQuantizedPanelBlocks) {
        multiply_panel<kQuantizedPanelBlocks>(work, chunk, point, panel, pixels, to);
      } else {
        multiply_panel<1>(work, chunk, point, panel, pixels, to);
      }
    }
  }
}

// Makes the outputs of one block of tiles from their products.
class BlockOfTiles {
 public:
  BlockOfTiles(const QuantizedConvolution& a, int64_t block)
      : a_(a),
        block_(block),
        offset_(load_ints(a.offsets + block * kLanes)),
        finish_{.to = a.to,
                .factor = load(a.factors + block * kLanes),
                .bias = load(a.bias + block * kLanes),
                .lanes = channel_lanes(a.output_shape, block)} {
    const int64_t terms = a.input_shape.padded_channels() * a.window_pixels();
    const float *const factors = a.factors + block * kLanes, *const bias = a.bias + block * kLanes;
    writes_ = WriteBytes<false>::fits(a.to, factors, bias, kLanes, terms);
    adds_ = WriteBytes<true>::fits(a.to, factors, bias, kLanes, terms);
    quotients_.set(a.to, factors, bias);
  }

  void make(const TilePlace& place, const int32_t* products) const {
    const MapShape& out = a_.output_shape;
    const int64_t height = smaller(kTile, out.height - place.row), width = smaller(kTile, out.width - place.column);
    const int64_t at =
        (((place.sample * out.blocks() + block_) * out.height + place.row) * out.width + place.column) * kLanes;
    Words columns[kTile][kSide];
#pragma GCC unroll 6
    for (int j = 0; j < kSide; ++j) {
      Words column[kSide], made[kTile];
#pragma GCC unroll 6
      for (int i = 0; i < kSide; ++i) {
        column[i] = __builtin_bit_cast(Words, load_ints(products + (i * kSide + j) * kUnit * kLanes));
      }
      transform_products(column, made);
#pragma GCC unroll 4
      for (int i = 0; i < kTile; ++i) columns[i][j] = made[i];
    }
    for (int64_t i = 0; i < height; ++i) {
      Words made[kTile];
      transform_products(columns[i], made);
      Ints sums[kTile][1];
#pragma GCC unroll 4
      for (int j = 0; j < kTile; ++j) sums[j][0] = sums_of(made[j]) + offset_;
      write(sums, width, at + i * out.width * kLanes);
    }
  }

 private:
  [[gnu::always_inline]] void write(const Ints (&sums)[kTile][1], int64_t width, int64_t at) const {
    if (width == kTile && writes_) return write_bytes<false>(sums, at);
    if (width == kTile && adds_) return write_bytes<true>(sums, at);
    int32_t stored[kTile * kLanes];
    for (int j = 0; j < kTile; ++j) store_ints(stored + j * kLanes, sums[j][0]);
    finish(finish_, stored, width, at);
  }
  template <bool residual>
  [[gnu::always_inline]] void write_bytes(const Ints (&sums)[kTile][1], int64_t at) const {
    WriteBytes<residual> end(a_.to, quotients_.factors, quotients_.bias, 0, /*streams=*/false);
    end.output += at;
    if (residual) end.added += at;
    end(sums);
  }

  const QuantizedConvolution& a_;
  int64_t block_;
  Ints offset_;
  Finish finish_;
  FactorsOfQuotients<kLanes> quotients_;
  bool writes_, adds_;
};

void write_chunk(const QuantizedConvolution& a, const Work& work, const Chunk& chunk, int64_t first, int64_t end,
                 const int32_t* products) {
  for (int64_t block = first; block < end; ++block) {
    const BlockOfTiles outputs(a, block);
    for (int64_t unit = 0; unit < chunk.units(); ++unit) {
      const int32_t* const of_unit = products + (unit * work.part + block - first) * kProductStep;
      for (int64_t t = 0; t < chunk.count(unit); ++t) {
        outputs.make(place_of(a, chunk.begin(unit) + t), of_unit + t * kLanes);
      }
    }
  }
}

// Makes the output blocks [first, end) of a chunk whose pixels are transformed.
void make_blocks(const QuantizedConvolution& a, const Work& work, const Chunk& chunk, int64_t first, int64_t end,
                 const int16_t* pixels, int32_t* products) {
  for (int64_t part = first; part < end; part += work.part) {
    const int64_t part_end = smaller(part + work.part, end);
    multiply_chunk(a, work, chunk, part, part_end, pixels, products);
    write_chunk(a, work, chunk, part, part_end, products);
  }
}

}  // namespace

void quantized_winograd(const QuantizedConvolution& a) {
  const Work work(a);
  if (work.tiles == 0) return;
  auto* const memory = static_cast<uint8_t*>(a.scratch);
#pragma omp parallel num_threads(a.threads)
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    if (work.shares_weights) {
      auto* const pixels = reinterpret_cast<uint16_t*>(memory);
      auto* const products = reinterpret_cast<int32_t*>(memory + work.pixel_bytes() + thread * work.product_bytes());
      const Chunk all = {0, work.tiles};
      transform_chunk(a, work, all, work.pairs * thread / threads, work.pairs * (thread + 1) / threads, pixels);
#pragma omp barrier
      const int64_t panels = divided_up(work.blocks, kQuantizedPanelBlocks);
      make_blocks(a, work, all, panels * thread / threads * kQuantizedPanelBlocks,
                  smaller(panels * (thread + 1) / threads * kQuantizedPanelBlocks, work.blocks),
                  reinterpret_cast<const int16_t*>(pixels), products);
    } else {
      auto* const pixels =
          reinterpret_cast<uint16_t*>(memory + thread * thread_stride(work.pixel_bytes() + work.product_bytes()));
      auto* const products = reinterpret_cast<int32_t*>(pixels + work.pixel_bytes() / 2);
      const int64_t begin = work.tiles * thread / threads, end = work.tiles * (thread + 1) / threads;
      const int64_t chunks = divided_up(end - begin, work.units * kUnit);
      for (int64_t c = 0; c < chunks; ++c) {
        Chunk chunk = {begin + (end - begin) * c / chunks, 0};
        chunk.tiles = begin + (end - begin) * (c + 1) / chunks - chunk.first;
        transform_chunk(a, work, chunk, 0, work.pairs, pixels);
        make_blocks(a, work, chunk, 0, work.blocks, reinterpret_cast<const int16_t*>(pixels), products);
      }
    }
  }
}

int64_t quantized_winograd_scratch_bytes(const QuantizedConvolution& a) {
  const Work work(a);
  return work.shares_weights ? work.pixel_bytes() + a.threads * work.product_bytes()
                             : thread_scratch_bytes(work.pixel_bytes() + work.product_bytes(), a.threads);
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
