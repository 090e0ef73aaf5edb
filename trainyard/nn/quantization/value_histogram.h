// Collects the values of an activation and finds the range to quantize.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/quantization/rounding.h"

namespace trainyard::nn {

// Counts values in bins of one width on both sides of zero. All values are seen twice: the first time their range is
// found, the second time they are counted.
class ValueHistogram {
 public:
  static constexpr int64_t kBins = 2048;  // on each side of zero

  // Widens the range so that it contains the values, float. The range is NaN from the first NaN on.
  void find_range(const at::Tensor& values);
  // Counts the values. Call it after find_range() has seen them all.
  void count(const at::Tensor& values);

  // Returns the smallest and the largest value, and zero.
  [[nodiscard]] ValueRange min_max() const { return range_; }
  // Returns the range that leaves out (100 - percent) % of the values at each end, zeros counted. Within a bin values
  // are taken as evenly distributed.
  [[nodiscard]] ValueRange percentile(double percent) const;
  // Returns the range within min_max() whose largest absolute value is entropy_threshold()'s.
  [[nodiscard]] ValueRange entropy() const;

 private:
  double bin_width() const;
  // Returns the value below which the given number of counted values are.
  double value_at(double rank) const;

  ValueRange range_;
  int64_t total_ = 0;
  std::vector<int64_t> counts_{};  // of values from -kBins * bin_width() on; empty before count()
};

// Returns how many of the first bins to keep: those, as `levels` steps, whose distribution has the least
// Kullback-Leibler divergence from that of all values, where the values behind them are counted as in the last one
// (Migacz, "8-bit inference with TensorRT", 2017). `counts` are of absolute values, from zero on in bins of one width.
// Zeros are exact with any range, so the first bin counts as much as the second. Returns counts.size() for fewer bins
// than levels, and where no range is better than another.
[[nodiscard]] int64_t entropy_threshold(std::span<const int64_t> counts, int64_t levels);

}  // namespace trainyard::nn
