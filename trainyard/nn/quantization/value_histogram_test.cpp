// Ranges against order statistics, and against numpy's search of TensorRT's published method:
// tools/golden/entropy_range.py.
#include "trainyard/nn/quantization/value_histogram.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
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

// The Kullback-Leibler divergence of the first `kept` counts, the others added to the last of them, from their means in
// `levels` steps.
double divergence_of(const std::vector<double>& counts, size_t kept, size_t levels) {
  std::vector<double> all(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(kept));
  for (size_t bin = kept; bin < counts.size(); ++bin) all.back() += counts[bin];
  std::vector<double> sums(levels), filled(levels);
  double total = 0, inside = 0;
  for (size_t bin = 0; bin < kept; ++bin) {
    sums[bin * levels / kept] += counts[bin];
    filled[bin * levels / kept] += counts[bin] > 0 ? 1 : 0;
    inside += counts[bin];
    total += all[bin];
  }
  double divergence = 0;
  for (size_t bin = 0; bin < kept; ++bin) {
    if (all[bin] == 0) continue;
    if (counts[bin] == 0) return std::numeric_limits<double>::infinity();
    const size_t step = bin * levels / kept;
    const double p = all[bin] / total, q = sums[step] / filled[step] / inside;
    divergence += p * std::log(p / q);
  }
  return divergence;
}

// Few counts, of which each one matters.
TEST(EntropyThreshold, HasTheLeastDivergence) {
  struct Case {
    size_t levels;
    std::vector<int64_t> counts;
    int64_t kept;
  };
  for (const Case& tested :
       std::vector<Case>{{2, {16, 17, 8, 23, 17, 14, 4, 6, 0, 3, 8, 8, 2, 1, 3, 0, 1, 1, 1, 1}, 13},
                         {5, {5, 6, 20, 20, 16, 14, 15, 10, 0, 4, 2, 6, 1, 1, 1, 0, 0, 0, 1, 1}, 13},
                         {3, {12, 3, 8, 21, 2, 12, 13, 15, 2, 6, 0, 8, 0, 4, 3, 1, 0, 1, 1, 0}, 4},
                         {5, {18, 7, 3, 6, 0, 15, 8, 8, 8, 7, 8, 4, 3, 1, 4, 1, 1, 0, 1, 0}, 17},
                         {3, {13, 4, 9, 10, 10, 2, 14, 15, 0, 6, 8, 9, 1, 1, 4, 0, 1, 0, 0, 1}, 17}}) {
    SCOPED_TRACE(tested.kept);
    std::vector<double> counts(tested.counts.begin(), tested.counts.end());
    counts[0] = counts[1];  // zeros are no evidence of a range
    const double least = divergence_of(counts, static_cast<size_t>(tested.kept), tested.levels);
    for (size_t kept = tested.levels; kept <= counts.size(); ++kept) {
      EXPECT_GE(divergence_of(counts, kept, tested.levels), least) << kept;
    }
    EXPECT_EQ(entropy_threshold(tested.counts, static_cast<int64_t>(tested.levels)), tested.kept);
  }
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
