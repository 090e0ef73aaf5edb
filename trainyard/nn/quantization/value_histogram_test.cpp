// Ranges against order statistics, and against numpy's search of TensorRT's published method:
// tools/golden/entropy_range.py.
#include "trainyard/nn/quantization/value_histogram.h"

#include <cmath>
#include <fstream>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace trainyard::nn::value_histogram_test {
namespace {

ValueHistogram histogram_of(const std::vector<at::Tensor>& batches) {
  ValueHistogram histogram;
  for (const at::Tensor& batch : batches) histogram.find_range(batch);
  for (const at::Tensor& batch : batches) histogram.count(batch);
  return histogram;
}

// The same formulas as the script's.
std::vector<int64_t> counts_of(int number) {
  std::vector<int64_t> counts;
  for (int i = 0; i < 2048; ++i) {
    double count = 1000;
    if (number == 0) count = 1e6 * std::exp(-i / 60.0);
    if (number == 1) count = 1e6 * std::exp(-0.5 * (i / 500.0) * (i / 500.0));
    if (number == 2) count = 1e6 * std::exp(-0.5 * (i / 150.0) * (i / 150.0)) + (i > 2000 ? 3 : 0);
    if (number == 4) count = i == 0 ? 1e8 : 1e5 * std::exp(-i / 200.0);
    counts.push_back(static_cast<int64_t>(std::floor(count + 0.5)));
  }
  return counts;
}

TEST(EntropyThreshold, IsThatOfTheScript) {
  std::ifstream file(TRAINYARD_SOURCE_DIR "/trainyard/nn/testdata/entropy_ranges.txt");
  int number = 0, lines = 0;
  int64_t levels = 0, kept = 0;
  while (file >> number >> levels >> kept) {
    EXPECT_EQ(entropy_threshold(counts_of(number), levels), kept) << "histogram " << number << ", levels " << levels;
    ++lines;
  }
  EXPECT_EQ(lines, 10);
}

TEST(EntropyThreshold, KeepsAllWhereThereIsNothingToChoose) {
  EXPECT_EQ(entropy_threshold(std::vector<int64_t>(100, 5), 128), 100);
  EXPECT_EQ(entropy_threshold(std::vector<int64_t>(2048, 0), 128), 2048);
  EXPECT_EQ(entropy_threshold(std::vector<int64_t>{}, 128), 0);
  EXPECT_EQ(entropy_threshold(std::vector<int64_t>{7}, 0), 1);
  // All values in one bin, zeros apart.
  std::vector<int64_t> counts(2048);
  counts[0] = 1000000;
  EXPECT_EQ(entropy_threshold(counts, 128), 2048);
}

TEST(ValueHistogram, MinMaxIsOverAllBatchesAndContainsZero) {
  EXPECT_EQ(histogram_of({at::tensor({1.0F, 3.0F}), at::tensor({2.0F, -5.0F})}).min_max(), (ValueRange{-5, 3}));
  EXPECT_EQ(histogram_of({at::tensor({2.0F, 3.0F})}).min_max(), (ValueRange{0, 3}));
  EXPECT_EQ(histogram_of({at::tensor({-2.0F, -3.0F})}).min_max(), (ValueRange{-3, 0}));
  EXPECT_EQ(histogram_of({}).min_max(), (ValueRange{0, 0}));
}

TEST(ValueHistogram, PercentilesAreThoseOfTheSortedValues) {
  // A cube: many values near zero, few far away, on both sides.
  const at::Tensor values = at::linspace(-1, 2, 100001).pow(3);
  const ValueHistogram histogram = histogram_of({values.narrow(0, 0, 30000), values.narrow(0, 30000, 70001)});
  const at::Tensor sorted = std::get<0>(values.sort());
  for (const double percent : {90.0, 99.0, 99.9, 99.99}) {
    const double outside = (100 - percent) / 100 * 100000;
    const ValueRange range = histogram.percentile(percent);
    constexpr double kBin = 8.0 / 2048;
    EXPECT_NEAR(range.low, sorted[static_cast<int64_t>(outside)].item<double>(), kBin) << percent;
    EXPECT_NEAR(range.high, sorted[static_cast<int64_t>(100000 - outside)].item<double>(), kBin) << percent;
    EXPECT_LT(range.high, 8) << percent;
  }
  EXPECT_EQ(histogram.percentile(100), histogram.min_max());
}

TEST(ValueHistogram, PercentilesOfMostlyZerosKeepWhatThereIs) {
  const at::Tensor values = at::cat({at::zeros({100000}), at::tensor({1.0F, 2.0F})});
  EXPECT_EQ(histogram_of({values}).percentile(99.9), (ValueRange{0, 2}));
}

TEST(ValueHistogram, EntropyIsThatOfTheCountsOfAbsoluteValues) {
  // Bins of width 1, whose counts are known: values in their middle, and one at the end of the last.
  std::vector<int64_t> counts;
  std::vector<float> values;
  for (int i = 0; i < 2048; ++i) {
    counts.push_back(static_cast<int64_t>(5000 * std::exp(-i / 60.0)) + (i > 2000 ? 1 : 0));
    values.insert(values.end(), static_cast<size_t>(counts.back()), static_cast<float>(i) + 0.5F);
  }
  values.back() = 2048;
  const at::Tensor one_sided = at::tensor(values);
  EXPECT_EQ(histogram_of({one_sided}).entropy(), (ValueRange{0, static_cast<double>(entropy_threshold(counts, 256))}));
  for (int64_t& count : counts) count *= 2;
  const auto threshold = static_cast<double>(entropy_threshold(counts, 128));
  EXPECT_LT(threshold, 2048);
  EXPECT_EQ(histogram_of({one_sided, one_sided.neg()}).entropy(), (ValueRange{-threshold, threshold}));
  // Nothing is far away: nothing is cut.
  EXPECT_EQ(histogram_of({at::linspace(0, 4, 409600)}).entropy(), (ValueRange{0, 4}));
}

TEST(ValueHistogram, TheRangeIsNanFromTheFirstNanOn) {
  const at::Tensor numbers = at::tensor({1.0F, -3.0F}), damaged = at::tensor({2.0F, std::nanf(""), -5.0F});
  for (const std::vector<at::Tensor>& batches :
       std::vector<std::vector<at::Tensor>>{{damaged}, {damaged, numbers}, {numbers, damaged}}) {
    const ValueRange range = histogram_of(batches).min_max();
    EXPECT_TRUE(std::isnan(range.low));
    EXPECT_TRUE(std::isnan(range.high));
    EXPECT_FALSE(is_usable(range));
  }
}

TEST(ValueHistogram, ZerosAloneAreARangeOfZero) {
  const ValueHistogram histogram = histogram_of({at::zeros({4, 3})});
  EXPECT_EQ(histogram.min_max(), (ValueRange{0, 0}));
  EXPECT_EQ(histogram.percentile(99.9), (ValueRange{0, 0}));
  EXPECT_EQ(histogram.entropy(), (ValueRange{0, 0}));
  EXPECT_FALSE(is_usable(histogram.min_max()));
}

}  // namespace
}  // namespace trainyard::nn::value_histogram_test
