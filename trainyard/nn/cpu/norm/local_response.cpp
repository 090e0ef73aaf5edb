// Local response normalization. The channels of a window lie in lanes of neighbouring blocks; a window's sum is made of
// blocks that are moved by one lane at a time.
//
//   s[c] = bias + alpha * sum of x[k]^2 over |k - c| <= radius, y[c] = x[c] * s[c]^-beta
//   x'[c] = g[c] * s[c]^-beta - 2 * alpha * beta * x[c] * sum of g[k] * x[k] * s[k]^(-beta - 1) over |k - c| <= radius
#include <omp.h>

#include "trainyard/nn/cpu/elementwise/activation.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

constexpr int64_t kTilePixels = 16;

// Returns log(x), and NaN for negative numbers and NaN. Subnormal numbers count as the smallest normal one. After logf
// of Moshier's Cephes library.
[[gnu::always_inline]] inline Floats logarithm(Floats x) {
  const Ints bits = __builtin_bit_cast(Ints, at_least(1.17549435e-38F, x));
  // x = 2^exponent * fraction, fraction from sqrt(1/2) to sqrt(2)
  const Ints offset = bits - 0x3F3504F3;
  const Floats exponent = __builtin_convertvector(offset >> 23, Floats);
  const Floats f = __builtin_bit_cast(Floats, (offset & 0x7FFFFF) + 0x3F3504F3) - fill(1.0F), square = f * f;
  const Floats tail =
      polynomial(f, fill(7.0376836292E-2F), -1.1514610310E-1F, 1.1676998740E-1F, -1.2420140846E-1F, 1.4249322787E-1F,
                 -1.6668057665E-1F, 2.0000714765E-1F, -2.4999993993E-1F, 3.3333331174E-1F) *
      f * square;
  const Floats low = multiply_add(exponent, fill(-2.12194440e-4F), tail) - fill(0.5F) * square;
  const Floats value = multiply_add(exponent, fill(0.693359375F), f + low);
  const Floats infinite = fill(__builtin_inff());
  return x >= Floats{} ? (x == infinite ? infinite : value) : fill(__builtin_nanf(""));
}

enum class Power : uint8_t { kHalf, kThreeQuarters, kAny };

// s^-beta
template <Power power>
[[gnu::always_inline]] inline Floats inverse_power(Floats s, float beta) {
  if constexpr (power == Power::kHalf) return fill(1.0F) / square_root(s);
  if constexpr (power == Power::kThreeQuarters) {
    const Floats root = square_root(s);
    return fill(1.0F) / (root * square_root(root));
  }
  if constexpr (power == Power::kAny) return exponential(fill(-beta) * logarithm(s));
}

// Returns, for each lane of block `b`, the sum over the channels up to `radius` away. term(block) gives the addends of
// a block.
template <typename Term>
[[gnu::always_inline]] inline Floats window_sum(int64_t b, int64_t blocks, int64_t radius, const Term& term) {
  const auto term_or_zero = [&](int64_t block) __attribute__((always_inline)) {
    return block >= 0 && block < blocks ? term(block) : Floats{};
  };
  // Lane 0 sums the channels `first` to `last`.
  const int64_t first = b * kLanes - radius, last = b * kLanes + radius;
  int64_t block = first >= 0 ? first / kLanes : (first + 1) / kLanes - 1;
  Floats low = term_or_zero(block), sum = {};
  for (int64_t channel = first; channel <= last; ++block) {
    const Floats high = term_or_zero(block + 1);
    const int64_t end = smaller(last + 1, (block + 1) * kLanes);
    for (Ints lanes = lanes_from(channel - block * kLanes); channel < end; ++channel, lanes += 1) {
      sum += pick(low, high, lanes);
    }
    low = high;
  }
  return sum;
}

// Pixels of all blocks of one sample: [first, first + count).
template <typename T>
struct Tile {
  MapShape shape;
  int64_t radius, sample, first, count;
  float bias, alpha;

  template <typename Arguments>
  Tile(const Arguments& a, int64_t n, int64_t tile)
      : shape(a.shape),
        radius(smaller(a.radius, a.shape.channels)),
        sample(n),
        first(tile * kTilePixels),
        count(smaller(kTilePixels, a.shape.pixels() - first)),
        bias(a.bias),
        alpha(a.alpha) {}
  [[gnu::always_inline]] int64_t at(int64_t block, int64_t pixel) const {
    return ((sample * shape.blocks() + block) * shape.pixels() + first + pixel) * kLanes;
  }
  // s of the formulas above.
  [[gnu::always_inline]] Floats base(const T* input, int64_t block, int64_t pixel) const {
    const Floats squares = window_sum(
        block, shape.blocks(), radius, [&](int64_t other) __attribute__((always_inline)) {
          const Floats x = load(input + at(other, pixel));
          return x * x;
        });
    return multiply_add(fill(alpha), squares, fill(bias));
  }
};

int64_t tiles(const MapShape& shape) {
  return (shape.pixels() + kTilePixels - 1) / kTilePixels;
}

template <typename T, Power power>
void forward(const LocalResponseForward& a) {
  const T* const input = static_cast<const T*>(a.input);
  T* const output = static_cast<T*>(a.output);
#pragma omp parallel for collapse(2)
  for (int64_t n = 0; n < a.shape.batch; ++n) {
    for (int64_t i = 0; i < tiles(a.shape); ++i) {
      const Tile<T> tile(a, n, i);
      for (int64_t b = 0; b < a.shape.blocks(); ++b) {
        const Bits lanes = channel_lanes(a.shape, b);
        for (int64_t p = 0; p < tile.count; ++p) {
          const Floats y = load(input + tile.at(b, p)) * inverse_power<power>(tile.base(input, b, p), a.beta);
          store(output + tile.at(b, p), keep(y, lanes));  // pad lanes are 0 / 0 where the bias is 0
        }
      }
    }
  }
}

template <typename T, Power power>
void backward(const LocalResponseBackward& a) {
  const T* const input = static_cast<const T*>(a.input);
  const T* const gradient = static_cast<const T*>(a.gradient);
  T* const target = static_cast<T*>(a.input_gradient);
  const int64_t blocks = a.shape.blocks(), floats = blocks * kTilePixels * kLanes;
  // For each thread: g * s^-beta and g * x * s^(-beta - 1) of a tile.
  float* const scratch = new float[static_cast<size_t>(omp_get_max_threads() * 2 * floats)];
#pragma omp parallel for collapse(2)
  for (int64_t n = 0; n < a.shape.batch; ++n) {
    for (int64_t i = 0; i < tiles(a.shape); ++i) {
      float* const direct = scratch + omp_get_thread_num() * 2 * floats;
      float* const indirect = direct + floats;
      const Tile<T> tile(a, n, i);
      const auto in_scratch = [](int64_t b, int64_t p) { return (b * kTilePixels + p) * kLanes; };
      for (int64_t b = 0; b < blocks; ++b) {
        const Bits lanes = channel_lanes(a.shape, b);
        for (int64_t p = 0; p < tile.count; ++p) {
          const Floats s = tile.base(input, b, p);
          const Floats scaled = load(gradient + tile.at(b, p)) * inverse_power<power>(s, a.beta);
          store(direct + in_scratch(b, p), keep(scaled, lanes));
          store(indirect + in_scratch(b, p), keep(scaled * load(input + tile.at(b, p)) / s, lanes));
        }
      }
      for (int64_t b = 0; b < blocks; ++b) {
        for (int64_t p = 0; p < tile.count; ++p) {
          const Floats sum = window_sum(
              b, blocks, tile.radius, [&](int64_t other) __attribute__((always_inline)) {
                return load(indirect + in_scratch(other, p));
              });
          const Floats x = load(input + tile.at(b, p)) * fill(-2 * a.alpha * a.beta);
          const Floats result = multiply_add(x, sum, load(direct + in_scratch(b, p)));
          T* const to = target + tile.at(b, p);
          store(to, a.accumulate ? load(to) + result : result);
        }
      }
    }
  }
  delete[] scratch;
}

template <typename T>
void forward_of(const LocalResponseForward& a) {
  if (a.beta == 0.5F) return forward<T, Power::kHalf>(a);
  if (a.beta == 0.75F) return forward<T, Power::kThreeQuarters>(a);
  forward<T, Power::kAny>(a);
}

template <typename T>
void backward_of(const LocalResponseBackward& a) {
  if (a.beta == 0.5F) return backward<T, Power::kHalf>(a);
  if (a.beta == 0.75F) return backward<T, Power::kThreeQuarters>(a);
  backward<T, Power::kAny>(a);
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(local_response_forward, LocalResponseForward, forward_of)
TRAINYARD_KERNEL_OF_TYPES(local_response_backward, LocalResponseBackward, backward_of)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
