#include "trainyard/nn/quantization/value_histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include <ATen/ops/aminmax.h>

namespace trainyard::nn {

void ValueHistogram::find_range(const at::Tensor& values) {
  if (values.numel() == 0) return;
  const auto [low, high] = at::aminmax(values);
  const auto least = low.item<double>(), largest = high.item<double>();
  // std::min and std::max would drop a NaN that comes second; one that comes first stays.
  range_.low = std::isnan(least) ? least : std::min(range_.low, least);
  range_.high = std::isnan(largest) ? largest : std::max(range_.high, largest);
}

double ValueHistogram::bin_width() const {
  return std::max(range_.high, -range_.low) / static_cast<double>(kBins);
}

void ValueHistogram::count(const at::Tensor& values) {
  counts_.resize(2 * kBins);
  if (!is_usable(range_)) return;
  const at::Tensor flat = values.to(at::kFloat).contiguous(values.suggest_memory_format());
  const float* data = flat.data_ptr<float>();
  const int64_t size = flat.numel();
  const auto bins_per_unit = static_cast<float>(1 / bin_width());
#pragma omp parallel
  {
    std::vector<int64_t> own(2 * kBins);
#pragma omp for nowait
    for (int64_t i = 0; i < size; ++i) {
      const auto bin = static_cast<int64_t>(std::floor(data[i] * bins_per_unit)) + kBins;
      ++own[static_cast<size_t>(std::clamp<int64_t>(bin, 0, 2 * kBins - 1))];
    }
#pragma omp critical(trainyard_value_histogram)
    for (size_t i = 0; i < own.size(); ++i) counts_[i] += own[i];
  }
  total_ += size;
}

double ValueHistogram::value_at(double rank) const {
  double below = 0;
  for (size_t bin = 0; bin < counts_.size(); ++bin) {
    const auto inside = static_cast<double>(counts_[bin]);
    if (inside > 0 && below + inside >= rank) {
      const double part = (rank - below) / inside;
      return (static_cast<double>(bin) - static_cast<double>(kBins) + part) * bin_width();
    }
    below += inside;
  }
  return range_.high;
}

ValueRange ValueHistogram::percentile(double percent) const {
  if (total_ == 0) return range_;
  const double outside = static_cast<double>(total_) * (100 - percent) / 100;
  ValueRange range{.low = std::min(0.0, std::max(range_.low, value_at(outside))),
                   .high = std::max(0.0, std::min(range_.high, value_at(static_cast<double>(total_) - outside)))};
  // More zeros than percent says: nothing would be left.
  return std::max(range.high, -range.low) > bin_width() ? range : range_;
}

ValueRange ValueHistogram::entropy() const {
  if (total_ == 0) return range_;
  std::vector<int64_t> absolute(kBins);
  for (int64_t bin = 0; bin < kBins; ++bin) {
    absolute[static_cast<size_t>(bin)] =
        counts_[static_cast<size_t>(kBins + bin)] + counts_[static_cast<size_t>(kBins - 1 - bin)];
  }
  // Steps on one side of zero.
  const int64_t levels = range_.low < 0 ? 128 : 256;
  const double threshold = bin_width() * static_cast<double>(entropy_threshold(absolute, levels));
  return {.low = std::max(range_.low, -threshold), .high = std::min(range_.high, threshold)};
}

namespace {

// The first `kept` bins as `levels` steps, against what they stand for.
class Divergence {
 public:
  explicit Divergence(std::span<const double> counts) : counts_(counts) {
    for (double count : counts) total_ += count;
  }

  double of(size_t kept, size_t levels) {
    const double outside = total_ - sum_before(kept);
    steps_.assign(levels, 0);
    filled_.assign(levels, 0);
    const auto step_of = [&](size_t bin) { return bin * levels / kept; };
    for (size_t bin = 0; bin < kept; ++bin) {
      if (counts_[bin] == 0) continue;
      steps_[step_of(bin)] += counts_[bin];
      ++filled_[step_of(bin)];
    }
    double divergence = 0;
    for (size_t bin = 0; bin < kept; ++bin) {
      const double all = counts_[bin] + (bin + 1 == kept ? outside : 0);
      if (all == 0) continue;
      if (counts_[bin] == 0) return std::numeric_limits<double>::infinity();
      const double rounded = steps_[step_of(bin)] / filled_[step_of(bin)];
      divergence += all / total_ * std::log(all / rounded);
    }
    return divergence + std::log((total_ - outside) / total_);
  }

 private:
  double sum_before(size_t kept) {
    for (; summed_ < kept; ++summed_) sum_ += counts_[summed_];
    return sum_;
  }

  const std::span<const double> counts_;
  double total_ = 0, sum_ = 0;
  size_t summed_ = 0;
  std::vector<double> steps_, filled_;
};

}  // namespace

int64_t entropy_threshold(std::span<const int64_t> counts, int64_t levels) {
  const auto size = static_cast<int64_t>(counts.size());
  if (size <= levels || size < 2) return size;
  std::vector<double> values(counts.begin(), counts.end());
  values[0] = values[1];
  Divergence divergence(values);
  double least = std::numeric_limits<double>::infinity();
  int64_t best = size;
  for (int64_t kept = levels; kept <= size; ++kept) {
    const double candidate = divergence.of(static_cast<size_t>(kept), static_cast<size_t>(levels));
    if (candidate > least || !std::isfinite(candidate)) continue;  // of equals the widest
    least = candidate;
    best = kept;
  }
  return best;
}

}  // namespace trainyard::nn
