#include "trainyard/optim/schedules/rate_range.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"

namespace trainyard::optim {
namespace {

constexpr int64_t kFewestSteps = 10, kMostSteps = 1'000'000;

void require(bool holds, const char* what, const std::string& expected, const std::string& actual) {
  if (holds) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = fmt::format("a range test of learning rates has no such {}", what),
                     .expected = expected,
                     .actual = actual});
}

// Returns the slope of the line of least squares through the losses of the points middle - reach to middle + reach, by
// step: rates are evenly spaced on the logarithmic axis.
double slope_around(const std::vector<RangeTestPoint>& points, size_t middle, size_t reach) {
  double moment = 0, spread = 0;
  for (size_t i = middle - reach; i <= middle + reach; ++i) {
    const double distance = static_cast<double>(i) - static_cast<double>(middle);
    moment += distance * points[i].loss;
    spread += distance * distance;
  }
  return moment / spread;
}

}  // namespace

void RangeTestOptions::validate() const {
  require(std::isfinite(lowest) && lowest > 0, "lowest rate", "a number above 0", fmt::format("{}", lowest));
  require(std::isfinite(highest) && highest > lowest, "highest rate", fmt::format("a number above {}", lowest),
          fmt::format("{}", highest));
  require(steps >= kFewestSteps && steps <= kMostSteps, "number of steps",
          fmt::format("{} to {}", kFewestSteps, kMostSteps), fmt::format("{}", steps));
  require(smoothing >= 0 && smoothing < 1, "smoothing", "at least 0 and below 1", fmt::format("{}", smoothing));
  require(divergence > 1, "limit of divergence", "a number above 1", fmt::format("{}", divergence));
}

RangeTest::RangeTest(const RangeTestOptions& options) : options_(options) {
  options_.validate();
}

double RangeTest::rate() const {
  const double part = static_cast<double>(points_.size()) / static_cast<double>(options_.steps - 1);
  return options_.lowest * std::pow(options_.highest / options_.lowest, std::min(part, 1.0));
}

void RangeTest::note(double loss) {
  if (!std::isfinite(loss)) {
    diverged_ = true;
    return;
  }
  sum_ = options_.smoothing * sum_ + (1 - options_.smoothing) * loss;
  const double weights = 1 - std::pow(options_.smoothing, static_cast<double>(points_.size() + 1));
  const RangeTestPoint point{.rate = rate(), .loss = loss, .smoothed = sum_ / weights};
  const bool first = points_.empty();
  points_.push_back(point);
  if (first || point.smoothed < lowest_smoothed_) lowest_smoothed_ = point.smoothed;
  if (!first && point.smoothed > options_.divergence * lowest_smoothed_) diverged_ = true;
}

bool RangeTest::done() const {
  return diverged_ || static_cast<int64_t>(points_.size()) >= options_.steps;
}

std::optional<RateProposal> RangeTest::proposal() const {
  const auto reach = static_cast<size_t>(options_.steps / 10);
  if (points_.size() < 2 * reach + 1) return std::nullopt;
  // The first smoothed losses are means of few: one of them can be the lowest by chance. As in Lightning's lr_find, ten
  // of them do not count; of short tests a third.
  const size_t settled = std::max(reach, std::min<size_t>(10, points_.size() / 3));
  const auto minimum = std::min_element(points_.begin() + static_cast<std::ptrdiff_t>(settled), points_.end(),
                                        [](const auto& a, const auto& b) { return a.smoothed < b.smoothed; });
  const auto lowest = static_cast<size_t>(minimum - points_.begin());
  double steepest = 0;
  size_t at = 0;
  for (size_t i = reach; i + reach < points_.size() && i <= lowest; ++i) {
    if (const double slope = slope_around(points_, i, reach); slope < steepest) {
      steepest = slope;
      at = i;
    }
  }
  if (steepest == 0) return std::nullopt;
  return RateProposal{.steepest = points_[at].rate,
                      .tenth_of_minimum = minimum->rate / 10,
                      .minimum = minimum->rate,
                      .fall = 1 - minimum->smoothed / points_[settled].smoothed};
}

}  // namespace trainyard::optim
