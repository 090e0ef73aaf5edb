// Scaled dot product attention in float, one window and head at a time, whose data fits a second-level cache. The
// backward computes the attention weights again, from the scores and the logarithms of the sums of their exponentials,
// as in Dao et al., "FlashAttention", 2022.
#include <omp.h>

#include "trainyard/nn/cpu/attention/rows.h"
#include "trainyard/nn/cpu/simd/small_matrices.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// The matrices of one place in a forward, in memory that its caller has. The scores are those of some queries, which
// stay in a core's first cache.
struct ForwardWork : PlaceSizes {
  ForwardWork(const AttentionForward& a, float* memory) : PlaceSizes(a.places), next_(memory) {
    for (int64_t i = tokens * depth; i < padded * depth; ++i) keys[i] = 0;
  }

 private:
  float* take(int64_t elements) {
    float* const taken = next_;
    next_ += elements;
    return taken;
  }
  float* next_;

 public:
  float *const queries = take(padded * depth), *const keys = take(padded * depth),
               *const values = take(padded * depth);  // [padded, depth]
  float* const across = take(padded * depth);         // [depth, padded]
  float* const product = take(padded * depth);        // [padded, depth]
  float* const weights = take(AttentionForward::kQueryBlock * padded);
};

// The matrices of one place in a backward.
struct Work : PlaceSizes {
  explicit Work(const AttentionPlaces& a) : PlaceSizes(a) {}

  const Matrix<float> queries{padded * depth}, keys{padded * depth}, values{padded * depth},
      gradients{padded * depth};                                          // [padded, depth]
  const Matrix<float> across{padded * depth};                             // [depth, padded]
  const Matrix<float> product{padded * depth};                            // [padded, depth]
  const Matrix<float> weights{padded * padded}, slopes{padded * padded};  // [tokens, padded]: and the scores' gradients
};

template <typename T>
void gather(const PlaceSizes& w, const Place& at, const Tokens& map, const void* data, int64_t part, float factor,
            float* rows) {
  const T* const from = static_cast<const T*>(data);
  const Floats factors = fill(factor);
  each_block(w, at, map, part, [&](int64_t token, int64_t channel, int64_t element) {
    store(rows + token * w.depth + channel, load(from + element) * factors);
  });
}

// [padded, depth] -> [depth, padded]
void turn(const PlaceSizes& w, const float* rows, float* columns) {
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

// Sets `products` to w.queries, or gradients, times the rows of keys, or values.
void multiply_by_rows(const Work& w, const float* left, const float* rows, float* products) {
  turn(w, rows, w.across);
  multiply({left, w.depth, 1}, w.across, w.padded, products, w.padded, w.asking, w.padded, w.depth);
}

template <typename T>
void attend(const AttentionForward& a, const ForwardWork& w, const Place& at) {
  gather<T>(w, at, input_of(w), a.input, kQueries, w.scale(), w.queries);
  gather<T>(w, at, input_of(w), a.input, kKeys, 1, w.keys);
  gather<T>(w, at, input_of(w), a.input, kValues, 1, w.values);
  turn(w, w.keys, w.across);
  float* const log_sums = a.log_sums == nullptr ? nullptr : a.log_sums + w.first_sum(at);
  for (int64_t first = 0; first < w.asking; first += AttentionForward::kQueryBlock) {
    const int64_t count = smaller(AttentionForward::kQueryBlock, w.asking - first);
    multiply({w.queries + first * w.depth, w.depth, 1}, w.across, w.padded, w.weights, w.padded, count, w.padded,
             w.depth);
    float factors[AttentionForward::kQueryBlock];
    for (int64_t i = 0; i < count; ++i) {
      factors[i] = softmax_numerators(w, at, first + i, w.weights + i * w.padded, 1,
                                      log_sums == nullptr ? nullptr : log_sums + first + i);
    }
    float* const product = w.product + first * w.depth;
    multiply({w.weights, w.padded, 1}, w.values, w.depth, product, w.depth, count, w.depth, w.tokens);
    scale_rows(product, count, w.depth, factors);
  }
  scatter<T>(w, at, output_of(w), w.product, 1, a.output, 0, false);
}

template <typename T>
void attend_back(const AttentionBackward& a, Work& w, const Place& at) {
  gather<T>(w, at, input_of(w), a.input, kQueries, w.scale(), w.queries);
  gather<T>(w, at, input_of(w), a.input, kKeys, 1, w.keys);
  gather<T>(w, at, input_of(w), a.input, kValues, 1, w.values);
  gather<T>(w, at, output_of(w), a.gradient, 0, 1, w.gradients);
  multiply_by_rows(w, w.queries, w.keys, w.weights);
  multiply_by_rows(w, w.gradients, w.values, w.slopes);
  const float* const log_sums = a.log_sums + w.first_sum(at);
  for (int64_t i = 0; i < w.asking; ++i) {
    pass_back(w, at, i, w.weights + i * w.padded, w.slopes + i * w.padded, 1, log_sums[i], a.bias_gradient);
  }
  multiply({w.weights, 1, w.padded}, w.gradients, w.depth, w.product, w.depth, w.tokens, w.depth, w.asking);
  scatter<T>(w, at, input_of(w), w.product, 1, a.input_gradient, kValues, a.accumulate);
  multiply({w.slopes, w.padded, 1}, w.keys, w.depth, w.product, w.depth, w.asking, w.depth, w.tokens);
  for (int64_t i = w.asking * w.depth; i < w.tokens * w.depth; ++i) w.product[i] = 0;
  scatter<T>(w, at, input_of(w), w.product, w.scale(), a.input_gradient, kQueries, a.accumulate);
  multiply({w.slopes, 1, w.padded}, w.queries, w.depth, w.product, w.depth, w.tokens, w.depth, w.asking);
  scatter<T>(w, at, input_of(w), w.product, 1, a.input_gradient, kKeys, a.accumulate);
}

}  // namespace

void attention_forward(const AttentionForward& a) {
#pragma omp parallel
  {
    const ForwardWork work(a, a.memory + omp_get_thread_num() * AttentionForward::memory_floats(a.places, kLanes));
    each_place_of_thread(a.places, [&](const Place& at) {
      a.places.dtype == DataType::kFloat ? attend<float>(a, work, at) : attend<Bfloat16>(a, work, at);
    });
  }
}

void attention_backward(const AttentionBackward& a) {
  clear_bias_gradient(a);
  each_place<Work>(a.places, [&](Work& work, const Place& at) {
    a.places.dtype == DataType::kFloat ? attend_back<float>(a, work, at) : attend_back<Bfloat16>(a, work, at);
  });
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
