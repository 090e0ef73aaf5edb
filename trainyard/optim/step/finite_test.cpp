#include "trainyard/optim/step/finite.h"

#include <limits>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace trainyard::optim::finite_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// At every place of a vector, at the ends of chunks, and beyond what one thread reads.
TEST(Finite, FindsOneElementWhereverItIs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t size : {1, 37, 5000, 600'000}) {
      if (size > 5000 && dtype != at::kFloat) continue;
      at::Tensor values = at::ones({size}, dtype);
      EXPECT_TRUE(all_finite(values)) << toString(dtype) << " " << size;
      for (const int64_t place : {int64_t{0}, size / 2, size - 1, std::min<int64_t>(size - 1, 4096)}) {
        for (const double bad : {kNan, -kNan, kInfinity, -kInfinity}) {
          values[place] = bad;
          EXPECT_FALSE(all_finite(values)) << toString(dtype) << " " << size << " " << place << " " << bad;
        }
        values[place] = 1;
      }
      EXPECT_TRUE(all_finite(values));
    }
  }
}

TEST(Finite, LargestAndSmallestNumbersAreFinite) {
  at::Tensor floats = at::zeros({4}, at::kFloat);
  floats[0] = std::numeric_limits<float>::max();
  floats[1] = std::numeric_limits<float>::lowest();
  floats[2] = std::numeric_limits<float>::denorm_min();
  floats[3] = -0.0;
  EXPECT_TRUE(all_finite(floats));
  at::Tensor doubles = at::zeros({2}, at::kDouble);
  doubles[0] = std::numeric_limits<double>::max();
  doubles[1] = std::numeric_limits<double>::denorm_min();
  EXPECT_TRUE(all_finite(doubles));
}

TEST(Finite, ReadsWhatLiesInOtherOrdersAndWithGaps) {
  at::Tensor all = at::ones({8, 6});
  const at::Tensor columns = all.narrow(1, 0, 3);
  all[2][4] = kNan;  // in the gap
  EXPECT_TRUE(all_finite(columns));
  EXPECT_FALSE(all_finite(all.t()));
  all[7][2] = kInfinity;
  EXPECT_FALSE(all_finite(columns));
}

TEST(Finite, NothingAndIntegersAreFinite) {
  EXPECT_TRUE(all_finite(at::zeros({0})));
  EXPECT_TRUE(all_finite(at::ones({3}, at::kLong)));
}

TEST(Finite, SaysWhatItIs) {
  at::Tensor values = at::ones({3});
  EXPECT_STREQ(non_finite_kind(values), "");
  values[1] = -kInfinity;
  EXPECT_STREQ(non_finite_kind(values), "inf");
  values[2] = kNan;
  EXPECT_STREQ(non_finite_kind(values), "NaN and inf");
  values[1] = 0;
  EXPECT_STREQ(non_finite_kind(values), "NaN");
}

}  // namespace
}  // namespace trainyard::optim::finite_test
