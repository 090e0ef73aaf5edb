// The kernel for maps of type T: Products<T> multiplies. Follows the rules of nn/cpu/simd/compiled_for.h.
//
// The sums of a slice's parts are made first, and lie as the products read them: [product][tile][block of k][pixel of
// the tile][lane]. Then the products of some panels of outputs follow each other, each for all tiles of the slice, and
// add what they give to the parts of the result, which stay in a near cache.
#pragma once

#include <omp.h>

#include "trainyard/nn/cpu/convolution/strassen/algorithm.h"
#include "trainyard/nn/cpu/convolution/strassen/arguments.h"
#include "trainyard/nn/cpu/elementwise/rounded_gelu.h"
#include "trainyard/nn/cpu/simd/products.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

namespace strassen {

// The size of a tile: registers hold its kTilePixels * kStrassenPanelBlocks sums, a step of the weights, and one number
// in all lanes.
constexpr int kTilePixels = kLanes == 16 ? 14 : 6;
// Weights come from the second-level cache, or from further away: they are asked for so many bytes ahead.
constexpr int64_t kAheadBytes = 512;

// Makes what the products multiply of the parts of the left factor, as the table says.
[[gnu::always_inline]] inline void left_sums(const Floats (&parts)[4], Floats (&sums)[7]) {
  sums[0] = parts[0] + parts[3];
  sums[1] = parts[2] + parts[3];
  sums[2] = parts[0];
  sums[3] = parts[3];
  sums[4] = parts[0] + parts[1];
  sums[5] = parts[2] - parts[0];
  sums[6] = parts[1] - parts[3];
}

// By part of the result: the first product that is added to it.
struct FirstProducts {
  int of[StrassenTable::kParts] = {};
};
consteval FirstProducts first_products() {
  FirstProducts first;
  for (int r = StrassenTable::kProducts; r-- > 0;) {
    for (int k = 0; k < StrassenTable::kParts; ++k) {
      if (kStrassenTable.result[r][k] != 0) first.of[k] = r;
    }
  }
  return first;
}
constexpr FirstProducts kFirst = first_products();

// Neighbouring pixels of an image.
struct Slice {
  int64_t sample, first, pixels;
};

// Some pixels of a part.
struct Tile {
  int64_t first, count;
};
inline int64_t tiles_of(int64_t part_pixels) {
  return (part_pixels + kTilePixels - 1) / kTilePixels;
}
// Tiles of about the same size: a short one would wait for its own sums.
inline Tile tile_of(int64_t part_pixels, int64_t index) {
  const int64_t tiles = tiles_of(part_pixels), first = part_pixels * index / tiles;
  return {first, part_pixels * (index + 1) / tiles - first};
}

template <typename T>
class Multiplication {
 public:
  explicit Multiplication(const StrassenForward& a)
      : a_(a),
        s_(a.shape),
        in_blocks_(s_.in_channels / kLanes),
        depth_(in_blocks_ * s_.kernel_height * s_.kernel_width / kCuts),
        out_pixels_(s_.out_height * s_.out_width),
        out_part_(s_.out_channels / kLanes / kCuts),
        panels_((out_part_ + kStrassenPanelBlocks - 1) / kStrassenPanelBlocks),
        tiles_(tiles_of(a.plan.part_pixels)),
        product_(a.plan.part_pixels * depth_ * kLanes),
        panel_(kParts * a.plan.part_pixels * kStrassenPanelBlocks * kLanes),
        meets_zeros_(s_.top > 0 || s_.left > 0 || last_row() >= s_.in_height || last_column() >= s_.in_width) {}

  int64_t slices() const { return s_.batch * a_.plan.slices; }
  int64_t panels() const { return panels_; }
  int64_t tiles() const { return tiles_; }

  Slice slice(int64_t index) const {
    const int64_t most = a_.plan.part_pixels * kCuts, first = index % a_.plan.slices * most;
    return {index / a_.plan.slices, first, smaller(most, out_pixels_ - first)};
  }

  // Makes the sums of a slice's tile, of all products.
  void make_sums(const Slice& c, int64_t index, T* sums) const {
    const Tile tile = tile_of(a_.plan.part_pixels, index);
    meets_zeros_ ? make_tile_sums<true>(c, tile, sums) : make_tile_sums<false>(c, tile, sums);
  }

  // Makes the outputs of the panels [begin, end) for a slice from its sums. `parts` is memory for the parts of the
  // result. A product goes through the tiles once: the weights of all panels stay in the second-level cache meanwhile,
  // and the sums of a tile in the first one. Returns whether all outputs are finite before their activation.
  bool make_panels(const Slice& c, int64_t begin, int64_t end, const T* sums, float* parts) const {
    for (int r = 0; r < kProducts; ++r) {
      for (int64_t t = 0; t < tiles_; ++t) {
        const Tile tile = tile_of(a_.plan.part_pixels, t);
        const T* const from = sums + r * product_ + tile.first * depth_ * kLanes;
        for (int64_t panel = begin; panel < end; ++panel) {
          const int64_t block = panel * kStrassenPanelBlocks, blocks = smaller(kStrassenPanelBlocks, out_part_ - block);
          const int64_t product = depth_ * kLanes * blocks * kLanes;
          const T* const weights =
              static_cast<const T*>(a_.weights) + block * kLanes * kProducts * depth_ * kLanes + r * product;
          // What follows these weights is what the panel's next product multiplies, or the first one of the panel
          // behind the last.
          const bool next = r + 1 < kProducts || (panel + 1 == end && end < panels_);
          const Ahead ahead{weights + product, next ? t : tiles_, tiles_};
          float* const to = parts + (panel - begin) * panel_;
          blocks == kStrassenPanelBlocks ? multiply_tile_of<kStrassenPanelBlocks>(r, tile, from, weights, ahead, to)
                                         : multiply_tile_of<1>(r, tile, from, weights, ahead, to);
        }
      }
    }
    Floats zeros{};
    for (int64_t panel = begin; panel < end; ++panel) {
      const float* const from = parts + (panel - begin) * panel_;
      with_activation(a_.activation, [&](auto kind) {
        const int64_t block = panel * kStrassenPanelBlocks, blocks = smaller(kStrassenPanelBlocks, out_part_ - block);
        zeros += blocks == kStrassenPanelBlocks ? finish<kStrassenPanelBlocks, kind.kValue>(c, block, from)
                                                : finish<1, kind.kValue>(c, block, from);
      });
    }
    return passing(zeros) == 0;
  }

 private:
  static constexpr int kCuts = StrassenTable::kCuts, kParts = StrassenTable::kParts,
                       kProducts = StrassenTable::kProducts;

  // The last row and the last column of the input that a window meets.
  int64_t last_row() const {
    return (s_.out_height - 1) * s_.stride_height + (s_.kernel_height - 1) * s_.dilation_height - s_.top;
  }
  int64_t last_column() const {
    return (s_.out_width - 1) * s_.stride_width + (s_.kernel_width - 1) * s_.dilation_width - s_.left;
  }

  // The position of a window: of its first row and column in the input.
  struct Corner {
    int64_t y, x, element;
  };
  // A block of the left factor's columns: a position of the window and a block of channels.
  struct Column {
    int64_t y, x;  // from the corner
    const T* data;
  };

  // Takes the last pixel again for one behind the image. What it is multiplied with cancels out in the results of
  // others.
  Corner corner(const Slice& c, int64_t pixel) const {
    const int64_t at = c.first + smaller(pixel, c.pixels - 1);
    const int64_t y = at / s_.out_width * s_.stride_height - s_.top;
    const int64_t x = at % s_.out_width * s_.stride_width - s_.left;
    return {.y = y, .x = x, .element = (y * s_.in_width + x) * kLanes};
  }
  Column column(int64_t sample, int64_t index) const {
    const int64_t position = index / in_blocks_, block = sample * in_blocks_ + index % in_blocks_;
    const int64_t y = position / s_.kernel_width * s_.dilation_height;
    const int64_t x = position % s_.kernel_width * s_.dilation_width;
    return {
        .y = y,
        .x = x,
        .data = static_cast<const T*>(a_.source) + (block * s_.in_height * s_.in_width + y * s_.in_width + x) * kLanes};
  }
  template <bool meets_zeros>
  [[gnu::always_inline]] Floats element(const Corner& corner, const Column& column) const {
    if constexpr (meets_zeros) {
      const bool inside = static_cast<uint64_t>(corner.y + column.y) < static_cast<uint64_t>(s_.in_height) &&
                          static_cast<uint64_t>(corner.x + column.x) < static_cast<uint64_t>(s_.in_width);
      if (!inside) return Floats{};
    }
    return load(column.data + corner.element);
  }

  template <bool meets_zeros>
  void make_tile_sums(const Slice& c, const Tile& tile, T* sums) const {
    Corner corners[kCuts][kTilePixels];
    for (int64_t part = 0; part < kCuts; ++part) {
      for (int64_t p = 0; p < tile.count; ++p) {
        corners[part][p] = corner(c, part * a_.plan.part_pixels + tile.first + p);
      }
    }
    T* to = sums + tile.first * depth_ * kLanes;
    for (int64_t b = 0; b < depth_; ++b) {
      Column columns[kCuts];
      for (int64_t cut = 0; cut < kCuts; ++cut) columns[cut] = column(c.sample, cut * depth_ + b);
      for (int64_t p = 0; p < tile.count; ++p, to += kLanes) {
        Floats parts[kParts], made[kProducts];
#pragma GCC unroll 2
        for (int part = 0; part < kCuts; ++part) {
#pragma GCC unroll 2
          for (int cut = 0; cut < kCuts; ++cut) {
            parts[part * kCuts + cut] = element<meets_zeros>(corners[part][p], columns[cut]);
          }
        }
        left_sums(parts, made);
#pragma GCC unroll 7
        for (int r = 0; r < kProducts; ++r) Products<T>::keep(to + r * product_, made[r]);
      }
    }
  }

  // The weights of the product that follows, which are fetched into the second-level cache meanwhile: each of the tiles
  // fetches its share, and none does as tile == tiles.
  struct Ahead {
    const T* weights;
    int64_t tile, tiles;
  };

  template <int blocks, int pixels = kTilePixels>
  void multiply_tile_of(int r, const Tile& tile, const T* from, const T* weights, const Ahead& ahead,
                        float* parts) const {
    if constexpr (pixels > 1) {
      if (tile.count < pixels) return multiply_tile_of<blocks, pixels - 1>(r, tile, from, weights, ahead, parts);
    }
    multiply_tile<blocks, pixels>(r, tile.first, from, weights, ahead, parts);
  }

  template <int blocks, int pixels>
  void multiply_tile(int r, int64_t first, const T* from, const T* weights, const Ahead& ahead, float* parts) const {
    using P = Products<T>;
    constexpr int64_t kBlockBytes = kLanes * blocks * kLanes * int64_t{sizeof(T)};  // of weights
    // The lines of a block that this tile fetches.
    const int64_t begin = kBlockBytes / 64 * ahead.tile / ahead.tiles * 64;
    const int64_t end = ahead.tile == ahead.tiles ? begin : kBlockBytes / 64 * (ahead.tile + 1) / ahead.tiles * 64;
    const char* next = reinterpret_cast<const char*>(ahead.weights);
    Floats sums[pixels][blocks] = {};
    for (int64_t b = 0; b < depth_; ++b, from += pixels * kLanes, next += kBlockBytes) {
      for (int64_t i = begin; i < end; i += 64) _mm_prefetch(next + i, _MM_HINT_T1);
#pragma GCC unroll 4
      for (int64_t k = 0; k < kLanes; k += P::kStep, weights += blocks * kLanes * P::kStep) {
        typename P::Weights line[blocks];
#pragma GCC unroll 2
        for (int v = 0; v < blocks; ++v) {
          line[v] = P::weights(weights + v * kLanes * P::kStep);
          _mm_prefetch(reinterpret_cast<const char*>(weights + v * kLanes * P::kStep) + kAheadBytes, _MM_HINT_T0);
        }
#pragma GCC unroll 14
        for (int p = 0; p < pixels; ++p) {
          const auto value = P::value(from + p * kLanes + k);
#pragma GCC unroll 2
          for (int v = 0; v < blocks; ++v) sums[p][v] = P::add(value, line[v], sums[p][v]);
        }
      }
    }
    for (int k = 0; k < kParts; ++k) {
      const int8_t sign = kStrassenTable.result[r][k];
      if (sign == 0) continue;
      float* const to = parts + (k * a_.plan.part_pixels + first) * blocks * kLanes;
      const bool starts = r == kFirst.of[k];
      const Floats factor = fill(sign);
#pragma GCC unroll 14
      for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 2
        for (int v = 0; v < blocks; ++v) {
          float* const at = to + (p * blocks + v) * kLanes;
          store(at, starts ? sums[p][v] * factor : multiply_add(sums[p][v], factor, load(at)));
        }
      }
    }
  }

  // Returns zeros, and NaN in the lanes of outputs that are not finite before their activation.
  template <int blocks, UnitActivation kind>
  Floats finish(const Slice& c, int64_t block, const float* parts) const {
    const ActivationTo<kind, T> activated;
    Floats zeros{};
    for (int64_t part = 0; part < kParts; ++part) {
      const int64_t first = part / kCuts * a_.plan.part_pixels;
      const int64_t out = part % kCuts * out_part_ + block;
      const int64_t count = smaller(a_.plan.part_pixels, c.pixels - first);
      for (int v = 0; v < blocks; ++v) {
        const Floats bias = a_.bias == nullptr ? Floats{} : load(a_.bias + (out + v) * kLanes);
        const float* from = parts + (part * a_.plan.part_pixels * blocks + v) * kLanes;
        T* to = static_cast<T*>(a_.output) +
                ((c.sample * out_part_ * kCuts + out + v) * out_pixels_ + c.first + first) * kLanes;
        for (int64_t p = 0; p < count; ++p, from += blocks * kLanes, to += kLanes) {
          Floats value = load(from) + bias;
          if (a_.add) value += load(to);
          zeros += value - value;
          store(to, activated(value));
        }
      }
    }
    return zeros;
  }

  const StrassenForward& a_;
  const StrassenShape& s_;
  const int64_t in_blocks_, depth_, out_pixels_;  // depth: blocks of columns of a part
  const int64_t out_part_, panels_;               // blocks of outputs of a part
  const int64_t tiles_, product_, panel_;  // tiles of a part; elements of a product's sums, and of a panel's parts
  const bool meets_zeros_;                 // windows reach beyond the input
};

template <typename T>
void forward(const StrassenForward& a) {
  const Multiplication<T> m(a);
  const int64_t slices = m.slices(), panels = m.panels();
  auto* const scratch = static_cast<char*>(a.scratch);
  const auto sums_at = [&](int64_t index) { return reinterpret_cast<T*>(scratch + index * a.plan.sum_bytes); };
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    float* const parts = reinterpret_cast<float*>(scratch + (a.plan.shared ? slices : threads) * a.plan.sum_bytes +
                                                  thread * a.plan.part_bytes);
    bool finite = true;
    const auto make = [&](int64_t slice, int64_t begin, int64_t end, const T* sums) {
      for (; begin < end; begin += a.plan.group) {
        finite = m.make_panels(m.slice(slice), begin, smaller(begin + a.plan.group, end), sums, parts) && finite;
      }
    };
    if (a.plan.shared) {
      const int64_t tiles = slices * m.tiles();
      for (int64_t i = tiles * thread / threads; i < tiles * (thread + 1) / threads; ++i) {
        m.make_sums(m.slice(i / m.tiles()), i % m.tiles(), sums_at(i / m.tiles()));
      }
#pragma omp barrier
      const int64_t begin = panels * thread / threads, end = panels * (thread + 1) / threads;
      for (int64_t i = 0; i < slices; ++i) make(i, begin, end, sums_at(i));
    } else {
      for (int64_t i = slices * thread / threads; i < slices * (thread + 1) / threads; ++i) {
        for (int64_t t = 0; t < m.tiles(); ++t) m.make_sums(m.slice(i), t, sums_at(thread));
        make(i, 0, panels, sums_at(thread));
      }
    }
    if (!finite && a.not_finite != nullptr) {
#pragma omp atomic write
      *a.not_finite = true;
    }
  }
}

}  // namespace strassen
}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
