// Computes percentiles of times by two common rules.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace trainyard::train {

inline std::vector<double> sorted_values(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// Returns the value at position ceil(p / 100 * n), from 1, of n > 0 sorted values: one of them, and p % of them are not
// above it. p in [1, 100].
inline double nearest_rank(const std::vector<double>& sorted, size_t p) {
  // In whole numbers: 0.07 * 100 is more than 7.
  return sorted.at((p * sorted.size() + 99) / 100 - 1);
}

// Returns the value at position q * (n - 1), from 0, of n > 0 sorted values, interpolated linearly: the default of
// numpy.quantile(). q in [0, 1].
inline double interpolated_quantile(std::span<const double> values, double q) {
  const std::vector<double> sorted = sorted_values(values);
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace trainyard::train
