// Distributions of numbers, as TensorBoard draws them.
#pragma once

#include <span>
#include <vector>

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::formats {

// A distribution as counts of values between limits.
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_squares = 0;
  // Bucket i counts the values in [bucket_limits[i - 1], bucket_limits[i]); the first begins at minus infinity.
  std::vector<double> bucket_limits{};
  std::vector<double> buckets{};

  bool operator==(const Histogram&) const = default;
};

// Counts values into TensorFlow's buckets, whose limits are 0, and plus and minus 1e-12 * 1.1^k. Values that are not
// finite are left out. One thread at a time.
class HistogramCounter {
 public:
  HistogramCounter();
  void add(double value);
  // Returns what was counted, without the empty buckets at both ends.
  [[nodiscard]] Histogram histogram() const;

 private:
  Histogram totals_;  // without buckets
  std::vector<double> buckets_;
};

// Returns the histogram of `values`, as HistogramCounter counts them.
[[nodiscard]] Histogram make_histogram(std::span<const float> values);

}  // namespace trainyard::formats
TRAINYARD_EXPORT_END
