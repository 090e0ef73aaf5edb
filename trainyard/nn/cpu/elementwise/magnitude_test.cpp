// The largest magnitude is compared with one element after the other, at counts around the pieces that kernels take.
#include "trainyard/nn/cpu/elementwise/magnitude.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "trainyard/core/system/cpu_isa.h"

namespace trainyard::nn::cpu::magnitude_test {
namespace {

struct MagnitudeKernels {
  const char* name;
  void (*largest_magnitude)(const LargestMagnitude&);
  void (*largest_row_sum)(const LargestRowSum&);
};

std::vector<MagnitudeKernels> compilations() {
  std::vector<MagnitudeKernels> all = {{"AVX2", avx2::largest_magnitude, avx2::largest_row_sum}};
  if (core::cpu_has_avx512()) all.push_back({"AVX-512", avx512::largest_magnitude, avx512::largest_row_sum});
  return all;
}

float largest(const MagnitudeKernels& kernels, const std::vector<float>& values) {
  float result = -1;
  kernels.largest_magnitude({.count = static_cast<int64_t>(values.size()), .values = values.data(), .result = &result});
  return result;
}
// The upper half of a float is the same number in 16 bits, where its lower half is zero.
float largest_in_16_bits(const MagnitudeKernels& kernels, const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  float result = -1;
  kernels.largest_magnitude({.count = static_cast<int64_t>(values.size()),
                             .dtype = DataType::kBfloat16,
                             .values = halves.data(),
                             .result = &result});
  return result;
}

// 4096 is a piece, from 65536 on a team works.
TEST(LargestMagnitude, IsFoundAtAnyPlace) {
  for (const MagnitudeKernels& kernels : compilations()) {
    for (const size_t count : {1, 7, 8, 9, 16, 31, 32, 33, 64, 65, 127, 129, 4096, 4097, 70001}) {
      const size_t stride = count < 200 ? 1 : count / 7;
      for (size_t place = 0; place < count; place += stride) {
        std::vector<float> values(count, -0.5F);
        values[place] = place % 2 == 0 ? 3.5F : -3.5F;
        ASSERT_EQ(largest(kernels, values), 3.5F) << kernels.name << " " << place << " of " << count;
        ASSERT_EQ(largest_in_16_bits(kernels, values), 3.5F) << kernels.name << " " << place << " of " << count;
      }
    }
  }
}

TEST(LargestMagnitude, OfZerosIsZeroAndOfNothing) {
  for (const MagnitudeKernels& kernels : compilations()) {
    for (const size_t count : {0, 1, 16, 64, 100}) {
      EXPECT_EQ(largest(kernels, std::vector<float>(count, -0.0F)), 0) << kernels.name << " " << count;
      EXPECT_EQ(largest_in_16_bits(kernels, std::vector<float>(count, 0)), 0) << kernels.name << " " << count;
    }
  }
}

TEST(LargestMagnitude, OfWhatIsNotFiniteIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const MagnitudeKernels& kernels : compilations()) {
    for (const size_t place : {0, 5, 64, 100}) {
      std::vector<float> values(101, 1);
      values[place] = -infinity;
      EXPECT_EQ(largest(kernels, values), infinity) << kernels.name;
      values[(place + 50) % 101] = nan;
      EXPECT_TRUE(std::isnan(largest(kernels, values))) << kernels.name;
      EXPECT_TRUE(std::isnan(largest_in_16_bits(kernels, values))) << kernels.name;
    }
  }
}

// Whole numbers: their sums are exact in any order.
TEST(LargestRowSum, IsThatOfTheRowWithTheLargestMagnitudes) {
  for (const MagnitudeKernels& kernels : compilations()) {
    for (const int64_t columns : {1, 9, 16, 64, 65, 100}) {
      for (const int64_t rows : {1, 2, 7, 1100}) {
        for (const int64_t most : {int64_t{0}, rows - 1}) {
          std::vector<float> values(static_cast<size_t>(rows * columns));
          for (int64_t i = 0; i < rows * columns; ++i) {
            const auto size = static_cast<float>(1 + i % columns % 3);
            values[static_cast<size_t>(i)] = (i % 2 == 0 ? size : -size) * (i / columns == most ? 2.0F : 1.0F);
          }
          float expected = 0, result = -1;
          for (int64_t c = 0; c < columns; ++c) expected += 2 * static_cast<float>(1 + c % 3);
          kernels.largest_row_sum({.rows = rows, .columns = columns, .values = values.data(), .result = &result});
          EXPECT_EQ(result, expected) << kernels.name << " " << rows << " x " << columns;
          values[static_cast<size_t>(columns - 1)] = std::numeric_limits<float>::quiet_NaN();
          kernels.largest_row_sum({.rows = rows, .columns = columns, .values = values.data(), .result = &result});
          EXPECT_TRUE(std::isnan(result)) << kernels.name << " " << rows << " x " << columns;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::nn::cpu::magnitude_test
