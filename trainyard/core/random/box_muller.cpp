// Compiled without errno and without contraction (CMakeLists.txt): the loop has no branch and becomes vector code,
// whose results are those of one pair alone. Both series end where what they leave out is under 1e-13 of the result:
// floats come out as from libm, but for one in 500,000.

#include "trainyard/core/random/box_muller.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace trainyard::core {
namespace {

// x = 2^exponent m with m from sqrt(1/2) to sqrt(2), and log m = 2 artanh((m - 1) / (m + 1)). For normal numbers.
inline double log_of(double x) {
  constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd, kBias = uint64_t{64} << 52;
  const auto bits = std::bit_cast<uint64_t>(x);
  const uint64_t above = bits - kRootOfHalf + kBias;  // 64 more than the exponent, in the exponent's place
  // An integer under 2^52 in the mantissa of 2^52 is the number 2^52 + integer.
  const double exponent = std::bit_cast<double>(above >> 52 | 0x4330000000000000) - (0x1p52 + 64);
  const auto m = std::bit_cast<double>(bits - (above & 0xfff0000000000000) + kBias);
  const double s = (m - 1) / (m + 1), z = s * s;
  const double odd = 1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13 + z * (1.0 / 15 + z * (1.0 / 17))));
  const double series = 1 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * odd)));
  return exponent * std::numbers::ln2 + 2 * s * series;
}

// For |a| up to pi / 4, from q = a^2.
inline double sine_of(double a, double q) {
  const double high = -1.0 / 5040 + q * (1.0 / 362880 + q * (-1.0 / 39916800 + q * (1.0 / 6227020800)));
  return a * (1 + q * (-1.0 / 6 + q * (1.0 / 120 + q * high)));
}
inline double cosine_of(double q) {
  const double high = 1.0 / 40320 + q * (-1.0 / 3628800 + q * (1.0 / 479001600 + q * (-1.0 / 87178291200)));
  return 1 + q * (-1.0 / 2 + q * (1.0 / 24 + q * (-1.0 / 720 + q * high)));
}

// Returns `whole` where all bits of `mask` are set, and `other` where none is. Bit operations, because `mask ? a : b`
// is a branch to the compiler, which moves the series' arithmetic into it and then gives up on vectors.
inline double chosen(uint64_t mask, double whole, double other) {
  return std::bit_cast<double>((std::bit_cast<uint64_t>(whole) & mask) | (std::bit_cast<uint64_t>(other) & ~mask));
}

inline double negated_if(uint32_t sign_bit, double x) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) ^ uint64_t{sign_bit & 0x80000000} << 32);
}

}  // namespace

// Compiled twice, chosen by the processor: eight pairs at a time with AVX-512, four with AVX2, the same bits. The
// choice is made before ThreadSanitizer's own start, which it would need.
#ifndef __SANITIZE_THREAD__
__attribute__((target_clones("arch=x86-64-v4", "default")))
#endif
void box_muller(const uint32_t* radius, const uint32_t* angle, float* first, float* second, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    // By way of a signed number: only that has a conversion in AVX2.
    const double uniform = (static_cast<double>(static_cast<int32_t>(radius[i] ^ 0x80000000)) + (0x1p31 + 1)) * 0x1p-32;
    const double r = std::sqrt(-2 * log_of(uniform));
    // The nearest quarter of the circle, in the two upper bits, and the signed rest.
    const uint32_t quarter = (angle[i] + 0x20000000) & 0xc0000000;
    const double rest = static_cast<double>(static_cast<int32_t>(angle[i] - quarter)) * (0x1p-31 * std::numbers::pi);
    const double q = rest * rest, sine = sine_of(rest, q), cosine = cosine_of(q);
    const uint64_t odd = -uint64_t{quarter >> 30 & 1};
    first[i] = static_cast<float>(r * negated_if(quarter + 0x40000000, chosen(odd, sine, cosine)));
    second[i] = static_cast<float>(r * negated_if(quarter, chosen(odd, cosine, sine)));
  }
}

}  // namespace trainyard::core
