// The largest elements of gradients, against a selection by sorting and sums in the order of ranks.
#include "trainyard/parallel/variable_update/top_k_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "trainyard/core/random/random.h"
#include "trainyard/parallel/testing/compressed_ranks.h"

namespace trainyard::parallel::top_k_gradients_test {
namespace {

GradientCompression top_k(double share) {
  return {.method = CompressionMethod::kTopK, .top_k_share = share};
}

template <typename T>
std::vector<int64_t> largest_by_sorting(const std::vector<T>& values, size_t count) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int64_t i) {
    const double size = std::abs(static_cast<double>(values[static_cast<size_t>(i)]));
    return std::isnan(size) ? std::numeric_limits<double>::infinity() : size;
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) > key(b); });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

template <typename T, typename Index>
void expect_selection(const std::vector<T>& values) {
  for (const size_t count : {size_t{1}, size_t{2}, size_t{17}, values.size() / 2, values.size()}) {
    if (count == 0 || count > values.size()) continue;
    std::vector<Index> indices(count);
    std::vector<T> selected(count);
    select_largest<T, Index>(values.data(), static_cast<int64_t>(values.size()), static_cast<int64_t>(count),
                             indices.data(), selected.data());
    const std::vector<int64_t> wanted = largest_by_sorting(values, count);
    EXPECT_TRUE(std::equal(indices.begin(), indices.end(), wanted.begin(), wanted.end())) << count;
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(selected[i], values[static_cast<size_t>(wanted[i])]);
  }
}

template <typename T, typename Index>
void expect_selections() {
  std::vector<T> values(1000);
  core::RandomStream random(3, "values");
  for (T& value : values) value = random.normal();
  expect_selection<T, Index>(values);
  for (T& value : values) value = std::round(2 * random.normal());  // many are equal, and of both signs
  expect_selection<T, Index>(values);
  expect_selection<T, Index>(std::vector<T>(100, T(0)));
  for (T& value : values) value = static_cast<T>(std::exp(20 * random.normal()));
  values[500] = -std::numeric_limits<T>::infinity();
  values[700] = std::numeric_limits<T>::denorm_min();
  expect_selection<T, Index>(values);
  expect_selection<T, Index>({T(-3)});
}

TEST(TopKGradients, SelectsAsSortingDoes) {
  expect_selections<float, int32_t>();
  expect_selections<double, int64_t>();
}

TEST(TopKGradients, ANumberThatIsNoneIsSelectedFirst) {
  std::vector<float> values(100, 1e30F);
  values[60] = std::nanf("");
  int32_t index = 0;
  float selected = 0;
  select_largest<float, int32_t>(values.data(), 100, 1, &index, &selected);
  EXPECT_EQ(index, 60);
}

// Three steps of three ranks, by the definition.
template <typename T>
void expect_definition(core::ReduceOp op, at::ScalarType dtype) {
  constexpr int kRanks = 3, kElements = 40 * 25, kSelected = 100;
  CompressedRanks all(kRanks, {{"w", {40, 25}}, {"b", {7}}}, top_k(0.1), op, dtype);
  std::vector<std::vector<T>> errors(kRanks, std::vector<T>(kElements));
  for (uint64_t step = 0; step < 3; ++step) {
    const auto draw = [&](int rank) {
      std::vector<float> values(kElements);
      core::RandomStream(9, "gradient", {step, static_cast<uint64_t>(rank)}).normals(values.data(), kElements);
      for (float& value : values) value = std::round(value * 16) / 16;  // so that some are equal
      return values;
    };
    all.reduce([&](int rank, auto& own) {
      const std::vector<float> values = draw(rank);
      for (int64_t i = 0; i < kElements; ++i) {
        own.gradient("w").view({-1}).template mutable_data_ptr<T>()[i] = values[static_cast<size_t>(i)];
      }
      own.gradient("b").fill_(rank);
    });
    std::vector<T> sums(kElements);
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<T>& error = errors[static_cast<size_t>(rank)];
      const std::vector<float> values = draw(rank);
      for (size_t i = 0; i < kElements; ++i) error[i] = static_cast<T>(values[i]) + error[i];
      for (const int64_t i : largest_by_sorting(error, kSelected)) {
        sums[static_cast<size_t>(i)] += std::exchange(error[static_cast<size_t>(i)], T(0));
      }
    }
    for (size_t r = 0; r < kRanks; ++r) {
      for (size_t i = 0; i < kElements; ++i) {
        const T wanted = op == core::ReduceOp::kMean ? sums[i] / T(kRanks) : sums[i];
        ASSERT_EQ(all[r].gradient("w").view({-1}).template const_data_ptr<T>()[i], wanted) << i;
        ASSERT_EQ(all[r].compressor->error().template const_data_ptr<T>()[i], errors[r][i]) << i;
      }
      EXPECT_EQ(all[r].gradient("b")[6].item<double>(), op == core::ReduceOp::kMean ? 1 : 3);
    }
  }
}

TEST(TopKGradients, AreTheirDefinition) {
  for (const auto op : {core::ReduceOp::kMean, core::ReduceOp::kSum}) {
    expect_definition<float>(op, at::kFloat);
    expect_definition<double>(op, at::kDouble);
  }
}

TEST(TopKGradients, CountTheirBytes) {
  // An index is as wide as a value: half of the elements would be no less than all of them.
  CompressedRanks all(2, {{"w", {30, 20}}, {"tiny", {1, 2}}, {"b", {11}}}, top_k(0.01), core::ReduceOp::kMean,
                      at::kFloat);
  EXPECT_EQ(all[0].compressor->bytes_of_step().exchanged, 8 * 6 + 4 * (2 + 11));
  EXPECT_EQ(all[0].compressor->bytes_of_step().uncompressed, 4 * (600 + 2 + 11));
  // Errors of w, what is not compressed, and indices and values of six elements.
  EXPECT_EQ(all[0].compressor->memory_bytes(), 4 * 600 + 4 * (2 + 11) + 8 * 6);
  CompressedRanks half(2, {{"w", {30, 20}}}, top_k(0.5));
  EXPECT_TRUE(half[0].compressor->compressed().empty());
}

// A part of an element counts as a whole one.
TEST(TopKGradients, SendAtLeastOneElement) {
  const auto bytes = [](int64_t rows, int64_t columns, double share) {
    CompressedRanks all(2, {{"w", {rows, columns}}}, top_k(share), core::ReduceOp::kMean, at::kFloat);
    return all[0].compressor->bytes_of_step().exchanged;
  };
  EXPECT_EQ(bytes(10, 5, 0.01), 8 * 1) << "half an element";
  EXPECT_EQ(bytes(5, 5, 0.1), 8 * 3) << "two and a half";
  EXPECT_EQ(bytes(10, 5, 0.4), 8 * 20);
  EXPECT_EQ(bytes(1, 3, 0.01), 8 * 1);
}

}  // namespace
}  // namespace trainyard::parallel::top_k_gradients_test
