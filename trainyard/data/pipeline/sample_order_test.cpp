#include "trainyard/data/pipeline/sample_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/testing/error.h"

namespace trainyard::data::sample_order_test {
namespace {

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> counting(int64_t size) {
  std::vector<int64_t> values(size);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(SampleOrder, EachIndexOnce) {
  for (int64_t size : {1, 2, 17, 1000}) {
    for (int64_t buffer : {1, 5, 1000, 5000}) {
      const OrderOptions options{.shuffle_buffer = buffer, .shift_ratio = 0.3};
      EXPECT_EQ(sorted(epoch_order(size, options, 1, 0)), counting(size)) << size << " " << buffer;
    }
  }
}

TEST(SampleOrder, FollowsSeedAndEpoch) {
  const std::vector<int64_t> order = epoch_order(1000, {}, 1, 0);
  EXPECT_EQ(epoch_order(1000, {}, 1, 0), order);
  EXPECT_NE(epoch_order(1000, {}, 1, 1), order);
  EXPECT_NE(epoch_order(1000, {}, 2, 0), order);
}

TEST(SampleOrder, WithoutShuffleTheFilesOrderFromTheShift) {
  EXPECT_EQ(epoch_order(6, {.shuffle = false}, 1, 3), counting(6));
  EXPECT_EQ(epoch_order(6, {.shuffle = false, .shift_ratio = 0.5}, 1, 3), (std::vector<int64_t>{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(epoch_order(6, {.shuffle_buffer = 1, .shift_ratio = 0.5}, 1, 3), (std::vector<int64_t>{3, 4, 5, 0, 1, 2}));
}

// An index comes out at most `buffer - 1` places before its own, as with tf.data: it must have been read.
TEST(SampleOrder, BufferBoundsHowFarAnIndexMovesForward) {
  const std::vector<int64_t> order = epoch_order(10'000, {.shuffle_buffer = 100}, 1, 0);
  int64_t farthest = 0;
  for (int64_t k = 0; k < 10'000; ++k) farthest = std::max(farthest, order[k] - k);
  EXPECT_LE(farthest, 99);
  EXPECT_GT(farthest, 90);
}

// With a buffer as large as the set every order is equally likely: each index is first equally often.
TEST(SampleOrder, FullShuffleIsUniform) {
  std::vector<int> first(8), last(8);
  constexpr int kEpochs = 16'000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> order = epoch_order(8, {}, 1, epoch);
    ++first[order.front()];
    ++last[order.back()];
  }
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(first[i], kEpochs / 8.0, 5 * std::sqrt(kEpochs / 8.0));
    EXPECT_NEAR(last[i], kEpochs / 8.0, 5 * std::sqrt(kEpochs / 8.0));
  }
}

TEST(SampleOrder, RefusesBadOptions) {
  EXPECT_THROW(epoch_order(10, {.shuffle_buffer = 0}, 1, 0), core::Error);
  EXPECT_THROW(epoch_order(10, {.shift_ratio = -0.1}, 1, 0), core::Error);
}

TEST(SampleOrder, SaysWhichOptionIsOutOfRange) {
  const auto refusal = [](const OrderOptions& options) { return core::message_of([&] { options.validate(); }); };
  EXPECT_EQ(refusal({.shuffle_buffer = 0}), "shuffle buffer is too small: expected at least 1 sample, got 0");
  EXPECT_EQ(refusal({.shift_ratio = -0.1}), "shift ratio is out of range: expected 0 <= shift_ratio < 1, got -0.1");
  EXPECT_EQ(refusal({.shift_ratio = 1}), "shift ratio is out of range: expected 0 <= shift_ratio < 1, got 1");
  EXPECT_EQ(refusal({.shuffle_buffer = 1, .shift_ratio = 0}), "no error");
}

}  // namespace
}  // namespace trainyard::data::sample_order_test
