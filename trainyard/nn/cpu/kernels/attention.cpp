// Scaled dot product attention, one window and head at a time, whose data fits a second-level cache. The backward
// computes the attention weights again, from the scores and the logarithms of the sums of their exponentials, as in Dao
// et al., "FlashAttention", 2022.
#include <initializer_list>

#include <math.h>

#include "trainyard/nn/cpu/kernels/activation.h"
#include "trainyard/nn/cpu/kernels/small_matrices.h"
#include "trainyard/nn/cpu/kernels/transpose.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

enum Part : int64_t { kQueries, kKeys, kValues };

// A window and head of a sample.
struct Place {
  int64_t sample, head, window;
};

// The matrices of one place. Rows are tokens. They are filled up with zeros to a multiple of kLanes.
class Work {
 public:
  explicit Work(const AttentionPlaces& a)
      : places(a),
        tokens(a.tokens),
        asking(a.queries),
        padded((a.tokens + kLanes - 1) / kLanes * kLanes),
        depth(a.shape.channels / a.heads),
        memory_(new float[kMatrices * padded * depth + 2 * padded * padded + kLineFloats]) {
    // The matrices begin at a cache line: vectors that cross two lines take twice as long.
    auto address = reinterpret_cast<uintptr_t>(memory_);
    float* next = memory_ + (64 - address % 64) % 64 / sizeof(float);  // less than kLineFloats on
    for (float** matrix : {&queries, &keys, &values, &gradients, &across, &product}) {
      *matrix = next;
      next += padded * depth;
    }
    weights = next;
    slopes = next + padded * padded;
  }
  ~Work() { delete[] memory_; }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  [[gnu::always_inline]] float scale() const { return 1 / sqrtf(static_cast<float>(depth)); }
  // Returns which lanes of the vector at column j of a row of scores hold a token.
  [[gnu::always_inline]] Bits lanes_at(int64_t j) const { return first_lanes(smaller(kLanes, tokens - j)); }

  const AttentionPlaces& places;
  const int64_t tokens, asking, padded, depth;  // asking: the first tokens, which have queries
  float *queries, *keys, *values, *gradients;   // [padded, depth]
  float* across;                                // [depth, padded]
  float* product;                               // [padded, depth]
  float *weights, *slopes;                      // [tokens, padded]: attention weights, and the scores' gradients

 private:
  static constexpr int64_t kMatrices = 6, kLineFloats = 64 / sizeof(float);
  float* memory_;
};

// A map of tokens: the input, with three parts, or the output.
struct Tokens {
  int64_t parts, pixels, rows;  // rows: tokens of a window that it has
};
Tokens input_of(const Work& w) {
  return {3, w.places.pixels_in, w.tokens};
}
Tokens output_of(const Work& w) {
  return {1, w.places.shape.pixels(), w.places.queries};
}

// Calls use(row, element) for each token and channel block of the head: `row` is its place in a matrix of Work,
// `element` its place in `part` of a map.
template <typename Use>
[[gnu::always_inline]] inline void each_block(const Work& w, const Place& at, const Tokens& map, int64_t part,
                                              Use&& use) {
  const int64_t blocks = w.places.shape.channels / kLanes;
  const int64_t first = (at.sample * map.parts + part) * blocks + at.head * w.depth / kLanes;
  const int32_t* const places = w.places.pixels + at.window * w.tokens;
  for (int64_t b = 0; b < w.depth / kLanes; ++b) {
    for (int64_t t = 0; t < map.rows; ++t) {
      use(t * w.depth + b * kLanes, ((first + b) * map.pixels + places[t]) * kLanes);
    }
  }
}

template <typename T>
void gather(const Work& w, const Place& at, const Tokens& map, const void* data, int64_t part, float factor,
            float* rows) {
  const T* const from = static_cast<const T*>(data);
  const Floats factors = fill(factor);
  each_block(w, at, map, part,
             [&](int64_t row, int64_t element) { store(rows + row, load(from + element) * factors); });
  for (int64_t i = map.rows * w.depth; i < w.padded * w.depth; ++i) rows[i] = 0;
}

template <typename T>
void scatter(const Work& w, const Place& at, const Tokens& map, const float* rows, float factor, void* data,
             int64_t part, bool accumulate) {
  T* const to = static_cast<T*>(data);
  const Floats factors = fill(factor);
  each_block(w, at, map, part, [&](int64_t row, int64_t element) {
    const Floats value = load(rows + row) * factors;
    store(to + element, accumulate ? load(to + element) + value : value);
  });
}

// [padded, depth] -> [depth, padded]
void turn(const Work& w, const float* rows, float* columns) {
  for (int64_t t = 0; t < w.padded; t += kLanes) {
    for (int64_t d = 0; d < w.depth; d += kLanes) {
      Floats square[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) square[i] = load(rows + (t + i) * w.depth + d);
      transpose(square);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) store(columns + (d + i) * w.padded + t, square[i]);
    }
  }
}

// Sets w.weights to the scores: products of w.queries, which are scaled already, and w.keys, with the bias and the -100
// between regions.
void score(const Work& w, const Place& at) {
  const AttentionPlaces& a = w.places;
  turn(w, w.keys, w.across);
  multiply({w.queries, w.depth, 1}, w.across, w.padded, w.weights, w.padded, w.asking, w.padded, w.depth);
  const int32_t* const regions = a.regions != nullptr ? a.regions + at.window * w.tokens : nullptr;
  for (int64_t i = 0; i < w.asking && (a.bias != nullptr || regions != nullptr); ++i) {
    float* const row = w.weights + i * w.padded;
    if (a.bias != nullptr) {
      const float* const bias = a.bias + (at.head * w.tokens + i) * w.tokens;
      for (int64_t j = 0; j < w.tokens; ++j) row[j] += bias[j];
    }
    if (regions != nullptr) {
      for (int64_t j = 0; j < w.tokens; ++j) row[j] += regions[j] != regions[i] ? -100.0F : 0.0F;
    }
  }
}

[[gnu::always_inline]] inline float largest_lane(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int64_t i = 1; i < kLanes; ++i) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
  return lanes[0];
}
[[gnu::always_inline]] inline float sum_of_lanes(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Replaces each score of a row by exp(score - offset), and returns their sum.
[[gnu::always_inline]] inline float exponentials(const Work& w, float* row, float offset) {
  Floats sum = {};
  for (int64_t j = 0; j < w.padded; j += kLanes) {
    const Floats e = keep(exponential(load(row + j) - fill(offset)), w.lanes_at(j));
    sum += e;
    store(row + j, e);
  }
  return sum_of_lanes(sum);
}

template <typename T>
void attend(const AttentionForward& a, Work& w, const Place& at) {
  gather<T>(w, at, input_of(w), a.input, kQueries, w.scale(), w.queries);
  gather<T>(w, at, input_of(w), a.input, kKeys, 1, w.keys);
  gather<T>(w, at, input_of(w), a.input, kValues, 1, w.values);
  score(w, at);
  float* const factors = w.slopes;  // not needed in the forward
  const int64_t first = ((at.sample * a.places.heads + at.head) * a.places.windows + at.window) * w.asking;
  for (int64_t i = 0; i < w.asking; ++i) {
    float* const row = w.weights + i * w.padded;
    Floats most = fill(-INFINITY);
    for (int64_t j = 0; j < w.padded; j += kLanes) {
      const Bits lanes = w.lanes_at(j);
      most = maximum(most, merged(keep(load(row + j), lanes), keep(fill(-INFINITY), static_cast<Bits>(~lanes))));
    }
    const float largest = largest_lane(most), sum = exponentials(w, row, largest);
    factors[i] = 1 / sum;
    if (a.log_sums != nullptr) a.log_sums[first + i] = largest + logf(sum);
  }
  multiply({w.weights, w.padded, 1}, w.values, w.depth, w.product, w.depth, w.asking, w.depth, w.tokens);
  for (int64_t i = 0; i < w.asking; ++i) {
    const Floats factor = fill(factors[i]);
    for (int64_t d = 0; d < w.depth; d += kLanes) {
      float* const place = w.product + i * w.depth + d;
      store(place, load(place) * factor);
    }
  }
  scatter<T>(w, at, output_of(w), w.product, 1, a.output, 0, false);
}

template <typename T>
void attend_back(const AttentionBackward& a, Work& w, const Place& at) {
  gather<T>(w, at, input_of(w), a.input, kQueries, w.scale(), w.queries);
  gather<T>(w, at, input_of(w), a.input, kKeys, 1, w.keys);
  gather<T>(w, at, input_of(w), a.input, kValues, 1, w.values);
  gather<T>(w, at, output_of(w), a.gradient, 0, 1, w.gradients);
  score(w, at);
  turn(w, w.values, w.across);
  multiply({w.gradients, w.depth, 1}, w.across, w.padded, w.slopes, w.padded, w.asking, w.padded, w.depth);
  const int64_t first = ((at.sample * a.places.heads + at.head) * a.places.windows + at.window) * w.asking;
  float* const bias = a.bias_gradient == nullptr
                          ? nullptr
                          : a.bias_gradient + (at.sample * a.places.heads + at.head) * w.tokens * w.tokens;
  for (int64_t i = 0; i < w.asking; ++i) {
    float *const row = w.weights + i * w.padded, *const slope = w.slopes + i * w.padded;
    exponentials(w, row, a.log_sums[first + i]);
    Floats products = {};
    for (int64_t j = 0; j < w.padded; j += kLanes) products = multiply_add(load(row + j), load(slope + j), products);
    const Floats mean = fill(sum_of_lanes(products));
    for (int64_t j = 0; j < w.padded; j += kLanes) store(slope + j, load(row + j) * (load(slope + j) - mean));
    if (bias == nullptr) continue;
    for (int64_t j = 0; j < w.tokens; ++j) bias[i * w.tokens + j] += slope[j];
  }
  multiply({w.weights, 1, w.padded}, w.gradients, w.depth, w.product, w.depth, w.tokens, w.depth, w.asking);
  scatter<T>(w, at, input_of(w), w.product, 1, a.input_gradient, kValues, a.accumulate);
  multiply({w.slopes, w.padded, 1}, w.keys, w.depth, w.product, w.depth, w.asking, w.depth, w.tokens);
  for (int64_t i = w.asking * w.depth; i < w.tokens * w.depth; ++i) w.product[i] = 0;
  scatter<T>(w, at, input_of(w), w.product, w.scale(), a.input_gradient, kQueries, a.accumulate);
  multiply({w.slopes, 1, w.padded}, w.queries, w.depth, w.product, w.depth, w.tokens, w.depth, w.asking);
  scatter<T>(w, at, input_of(w), w.product, 1, a.input_gradient, kKeys, a.accumulate);
}

// Calls use(work, place) for each place. Any thread takes a head of a sample; it goes through the windows in order,
// since all of them add to the same gradient of the bias.
template <typename Use>
void each_place(const AttentionPlaces& a, const Use& use) {
#pragma omp parallel
  {
    Work work(a);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < a.shape.batch * a.heads; ++i) {
      for (int64_t window = 0; window < a.windows; ++window) use(work, Place{i / a.heads, i % a.heads, window});
    }
  }
}

}  // namespace

void attention_forward(const AttentionForward& a) {
  each_place(a.places, [&](Work& work, const Place& at) {
    a.places.dtype == DataType::kFloat ? attend<float>(a, work, at) : attend<Bfloat16>(a, work, at);
  });
}

void attention_backward(const AttentionBackward& a) {
  if (a.bias_gradient != nullptr) {
    const int64_t count = a.places.shape.batch * a.places.heads * a.places.tokens * a.places.tokens;
    for (int64_t i = 0; i < count; ++i) a.bias_gradient[i] = 0;
  }
  each_place(a.places, [&](Work& work, const Place& at) {
    a.places.dtype == DataType::kFloat ? attend_back<float>(a, work, at) : attend_back<Bfloat16>(a, work, at);
  });
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
