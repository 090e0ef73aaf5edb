#include "trainyard/nn/execution/unreached_weights.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::nn::unreached_weights_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool meets_pixel(const WindowAxis& axis, int64_t k) {
  for (int64_t o = 0; o < axis.out; ++o) {
    const int64_t pixel = o * axis.stride + k * axis.dilation - axis.before;
    if (pixel >= 0 && pixel < axis.in) return true;
  }
  return false;
}

TEST(UnreachedWeights, AreTheOuterOnesOfASmallMap) {
  const WindowAxis pixel{.in = 1, .out = 1, .kernel = 3, .stride = 2, .before = 1}, wide{.in = 9, .out = 9};
  EXPECT_THAT(UnreachedWeights(pixel, pixel).places(), ElementsAre(0, 1, 2, 3, 5, 6, 7, 8));
  EXPECT_THAT(UnreachedWeights(wide, pixel).places(), ElementsAre(0, 2));
  EXPECT_THAT(UnreachedWeights(pixel, wide).places(), ElementsAre(0, 2));
  EXPECT_THAT(UnreachedWeights(wide, wide).places(), IsEmpty());
  EXPECT_TRUE(UnreachedWeights().empty());
  // Windows so far apart that places between those that meet the map meet nothing.
  const WindowAxis gap{.in = 2, .out = 2, .kernel = 7, .stride = 4, .before = 6};
  EXPECT_THAT(UnreachedWeights(wide, gap).places(), ElementsAre(0, 1, 4, 5));
}

TEST(UnreachedWeights, FollowTheDefinition) {
  std::mt19937 random(45);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  const auto axis = [&] {
    WindowAxis a{.in = draw(1, 9), .kernel = draw(1, 7), .stride = draw(1, 4), .dilation = draw(1, 3)};
    const int64_t extent = a.dilation * (a.kernel - 1) + 1;
    a.before = draw(0, extent);
    a.out = std::max<int64_t>((a.in + a.before + draw(0, extent) - extent) / a.stride + 1, 1);
    return a;
  };
  int some = 0;
  for (int i = 0; i < 2000; ++i) {
    const WindowAxis rows = axis(), columns = axis();
    std::vector<int64_t> expected;
    for (int64_t r = 0; r < rows.kernel; ++r) {
      for (int64_t c = 0; c < columns.kernel; ++c) {
        if (!meets_pixel(rows, r) || !meets_pixel(columns, c)) expected.push_back(r * columns.kernel + c);
      }
    }
    ASSERT_EQ(UnreachedWeights(rows, columns).places(), expected) << i;
    some += expected.empty() ? 0 : 1;
  }
  EXPECT_GT(some, 300);
  EXPECT_LT(some, 1900);
}

TEST(UnreachedWeights, BecomeZeroAndNothingElseDoes) {
  const WindowAxis pixel{.in = 1, .out = 1, .kernel = 3, .stride = 2, .before = 1},
      wide{.in = 2, .out = 1, .kernel = 2};
  std::vector<float> weights(3 * 6, std::numeric_limits<float>::quiet_NaN());
  UnreachedWeights(pixel, wide).clear(weights.data(), 3);
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool reached = i % 6 == 2 || i % 6 == 3;
    EXPECT_TRUE(reached ? std::isnan(weights[i]) : weights[i] == 0) << i;
  }
}

}  // namespace
}  // namespace trainyard::nn::unreached_weights_test
