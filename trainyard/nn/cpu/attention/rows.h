// The common part of the attention kernels: memory, the positions of windows and heads in the maps, and the softmax of
// a row of scores. Follows the rules of compiled_for.h.
#pragma once

#include <new>

#include <math.h>

#include "trainyard/nn/cpu/elementwise/activation.h"
#include "trainyard/nn/cpu/layout/transpose.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

// Zeros at first. They begin at a cache line: vectors that cross two lines take twice as long.
template <typename T>
class Matrix {
 public:
  explicit Matrix(int64_t elements)
      : data_(static_cast<T*>(::operator new(static_cast<size_t>(elements) * sizeof(T), kAlignment))) {
    __builtin_memset(data_, 0, static_cast<size_t>(elements) * sizeof(T));
  }
  ~Matrix() { ::operator delete(data_, kAlignment); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  [[gnu::always_inline]] operator T*() const { return data_; }  // NOLINT(google-explicit-constructor): an array

 private:
  static constexpr std::align_val_t kAlignment{64};
  T* data_;
};

// A window and head of a sample.
struct Place {
  int64_t sample, head, window;
};

// The sizes of the matrices of a window and head, whose rows are tokens, padded with zeros to a multiple of kLanes.
struct PlaceSizes {
  explicit PlaceSizes(const AttentionPlaces& a)
      : places(a),
        tokens(a.tokens),
        asking(a.queries),
        padded((a.tokens + kLanes - 1) / kLanes * kLanes),
        depth(a.shape.channels / a.heads) {}

  [[gnu::always_inline]] float scale() const { return 1 / sqrtf(static_cast<float>(depth)); }
  // Returns which lanes of the vector at column j of a row of scores hold a token.
  [[gnu::always_inline]] Bits lanes_at(int64_t j) const { return first_lanes(smaller(kLanes, tokens - j)); }
  // Returns the index of a place's first logarithm of a sum.
  [[gnu::always_inline]] int64_t first_sum(const Place& at) const {
    return ((at.sample * places.heads + at.head) * places.windows + at.window) * asking;
  }

  const AttentionPlaces& places;
  const int64_t tokens, asking, padded, depth;  // asking: the number of first tokens that have queries
};

// The parts of the input map.
enum Part : int64_t { kQueries, kKeys, kValues };

// A map of tokens: the input, with three parts, or the output.
struct Tokens {
  int64_t parts, pixels, rows;  // rows: tokens of a window that are used
};
inline Tokens input_of(const PlaceSizes& s) {
  return {3, s.places.pixels_in, s.tokens};
}
inline Tokens output_of(const PlaceSizes& s) {
  return {1, s.places.shape.pixels(), s.places.queries};
}

// Calls use(token, channel, element) for each token and channel block of the head: `channel` is the block's first
// channel within the head, and `element` the index of both in `part` of a map.
template <typename Use>
[[gnu::always_inline]] inline void each_block(const PlaceSizes& s, const Place& at, const Tokens& map, int64_t part,
                                              Use&& use) {
  const int64_t blocks = s.places.shape.channels / kLanes;
  const int64_t first = (at.sample * map.parts + part) * blocks + at.head * s.depth / kLanes;
  const int32_t* const places = s.places.pixels + at.window * s.tokens;
  for (int64_t b = 0; b < s.depth / kLanes; ++b) {
    for (int64_t t = 0; t < map.rows; ++t) use(t, b * kLanes, ((first + b) * map.pixels + places[t]) * kLanes);
  }
}

// Writes or adds factor * rows, [tokens, depth], to `part` of a map.
template <typename T>
void scatter(const PlaceSizes& s, const Place& at, const Tokens& map, const float* rows, float factor, void* data,
             int64_t part, bool accumulate) {
  T* const to = static_cast<T*>(data);
  const Floats factors = fill(factor);
  each_block(s, at, map, part, [&](int64_t token, int64_t channel, int64_t element) {
    const Floats value = load(rows + token * s.depth + channel) * factors;
    store(to + element, accumulate ? load(to + element) + value : value);
  });
}

// Adds the bias, and -100 for tokens of other regions, to factor * row, the scores of query i. Returns the factor that
// remains for the row: 1, or `factor` when there is nothing to add.
[[gnu::always_inline]] inline float add_bias(const PlaceSizes& s, const Place& at, int64_t i, float* row,
                                             float factor) {
  const AttentionPlaces& a = s.places;
  if (a.bias == nullptr && a.regions == nullptr) return factor;
  const float* const bias = a.bias == nullptr ? nullptr : a.bias + (at.head * s.tokens + i) * s.tokens;
  const int32_t* const regions = a.regions == nullptr ? nullptr : a.regions + at.window * s.tokens;
  for (int64_t j = 0; j < s.padded; j += kLanes) {
    const Bits lanes = s.lanes_at(j);
    Floats score = load(row + j) * fill(factor);
    if (bias != nullptr) score += load_lanes(bias + j, lanes);
    if (regions != nullptr) {
      const Ints others = __builtin_bit_cast(Ints, load_lanes(reinterpret_cast<const float*>(regions + j), lanes));
      score += others == regions[i] ? Floats{} : fill(-100.0F);
    }
    store(row + j, score);
  }
  return 1;
}

[[gnu::always_inline]] inline float sum_of_lanes(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Returns the largest score of a row.
[[gnu::always_inline]] inline float largest_of(const PlaceSizes& s, const float* row) {
  Floats most = fill(-INFINITY);
  for (int64_t j = 0; j < s.padded; j += kLanes) {
    const Bits lanes = s.lanes_at(j);
    most = maximum(most, merged(keep(load(row + j), lanes), keep(fill(-INFINITY), static_cast<Bits>(~lanes))));
  }
  float lanes[kLanes];
  store(lanes, most);
  for (int64_t i = 1; i < kLanes; ++i) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
  return lanes[0];
}

// Replaces each score of a row by exp(factor * score - offset), and returns their sum.
[[gnu::always_inline]] inline float exponentials(const PlaceSizes& s, float* row, float factor, float offset) {
  Floats sum = {};
  for (int64_t j = 0; j < s.padded; j += kLanes) {
    const Floats e = keep(exponential(multiply_add(load(row + j), fill(factor), fill(-offset))), s.lanes_at(j));
    sum += e;
    store(row + j, e);
  }
  return sum_of_lanes(sum);
}

// Replaces the scores of query i, which are row * factor without their bias, by exp(score - the largest of them).
// Returns 1 / their sum, and sets log_sum, if not null, to the logarithm of the sum of exp(score).
[[gnu::always_inline]] inline float softmax_numerators(const PlaceSizes& s, const Place& at, int64_t i, float* row,
                                                       float factor, float* log_sum) {
  factor = add_bias(s, at, i, row, factor);
  const float largest = largest_of(s, row) * factor, sum = exponentials(s, row, factor, largest);
  if (log_sum != nullptr) *log_sum = largest + logf(sum);
  return 1 / sum;
}

// Backward: replaces the scores of query i, as in softmax_numerators(), by their softmax, and `slope`, the gradient of
// the softmax, by the gradient of the scores, which it adds to the gradient of the bias.
[[gnu::always_inline]] inline void pass_back(const PlaceSizes& s, const Place& at, int64_t i, float* row, float* slope,
                                             float factor, float log_sum, float* bias_gradient) {
  exponentials(s, row, add_bias(s, at, i, row, factor), log_sum);
  Floats products = {};
  for (int64_t j = 0; j < s.padded; j += kLanes) products = multiply_add(load(row + j), load(slope + j), products);
  const Floats mean = fill(sum_of_lanes(products));
  for (int64_t j = 0; j < s.padded; j += kLanes) store(slope + j, load(row + j) * (load(slope + j) - mean));
  if (bias_gradient == nullptr) return;
  float* const bias = bias_gradient + ((at.sample * s.places.heads + at.head) * s.tokens + i) * s.tokens;
  for (int64_t j = 0; j < s.padded; j += kLanes) {
    const Bits lanes = s.lanes_at(j);
    store_lanes(bias + j, load_lanes(bias + j, lanes) + load(slope + j), lanes);
  }
}

// Multiplies `count` rows of a matrix by a factor each.
[[gnu::always_inline]] inline void scale_rows(float* rows, int64_t count, int64_t columns, const float* factors) {
  for (int64_t i = 0; i < count; ++i) {
    const Floats factor = fill(factors[i]);
    for (int64_t d = 0; d < columns; d += kLanes) store(rows + i * columns + d, load(rows + i * columns + d) * factor);
  }
}

// Calls use(place) for the places of this thread of a team. A thread processes a head of a sample, with its windows in
// order, since all of them add to the same gradient of the bias.
template <typename Use>
void each_place_of_thread(const AttentionPlaces& a, const Use& use) {
#pragma omp for schedule(static)
  for (int64_t i = 0; i < a.shape.batch * a.heads; ++i) {
    for (int64_t window = 0; window < a.windows; ++window) use(Place{i / a.heads, i % a.heads, window});
  }
}

// Calls use(work, place) for each place, with a Work of its own on each thread.
template <typename Work, typename Use>
void each_place(const AttentionPlaces& a, const Use& use) {
#pragma omp parallel
  {
    Work work(a);
    each_place_of_thread(a, [&](const Place& at) { use(work, at); });
  }
}

inline void clear_bias_gradient(const AttentionBackward& a) {
  if (a.bias_gradient == nullptr) return;
  const int64_t count = a.places.shape.batch * a.places.heads * a.places.tokens * a.places.tokens;
  for (int64_t i = 0; i < count; ++i) a.bias_gradient[i] = 0;
}

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
