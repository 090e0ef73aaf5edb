#include "trainyard/data/pipeline/bad_samples.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/registry.h"

namespace trainyard::data {
namespace {

using core::Error, core::ErrorCode;

constexpr int64_t kShownSamples = 10;
constexpr double kDefaultPart = 0.0001;
constexpr int64_t kDefaultLeast = 10;    // a tenth of a per mille of a small set would be none
constexpr double kLargestBudget = 1e15;  // whole numbers up to it are exact
constexpr const char* kSaved = "bad_samples";
constexpr std::array<const char*, 3> kPolicies = {"fail", "skip", "substitute"};

core::RandomStream stand_in_stream(const SampleKey& key) {
  return {key.seed, "stand_in", {static_cast<uint64_t>(key.epoch), static_cast<uint64_t>(key.sample)}};
}

}  // namespace

OnBadSample on_bad_sample(std::string_view name) {
  return core::enum_value<OnBadSample>("policy for bad samples", name, kPolicies);
}

void BadSampleOptions::validate() const {
  if (!budget || (*budget >= 0 && *budget <= 1)) return;
  if (*budget > 1 && *budget <= kLargestBudget && *budget == std::floor(*budget)) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "budget of bad samples is out of range",
                                            .expected = "a part of the data set in [0, 1], or a number of samples",
                                            .actual = fmt::format("{}", *budget)});
}

int64_t BadSampleOptions::allowed(int64_t dataset_size) const {
  if (budget == 0.0) return 0;
  const double part = budget.value_or(kDefaultPart);
  const int64_t samples =
      part > 1 ? static_cast<int64_t>(part) : static_cast<int64_t>(part * static_cast<double>(dataset_size));
  const int64_t least = budget ? 1 : std::clamp<int64_t>(dataset_size / 2, 1, kDefaultLeast);
  return std::max(least, samples);
}

Error failure_of(const Error& bad) {
  core::ErrorDetail detail = bad.detail();
  if (!detail.remedy.empty()) detail.remedy += "; ";
  detail.remedy += "trainyard data verify lists all bad samples, --on_bad_sample=skip goes on without them";
  return {bad.code(), std::move(detail)};
}

SubstituteSamples::SubstituteSamples(OnBadSample policy, const SampleKey& bad, Position place, int64_t dataset_size,
                                     SampleAt sample_at)
    : policy_(policy),
      key_(bad),
      place_(place),
      dataset_size_(dataset_size),
      sample_at_(std::move(sample_at)),
      random_(stand_in_stream(bad)) {}

SampleKey SubstituteSamples::next() {
  key_.seed = random_.next_u64();
  if (policy_ == OnBadSample::kSkip) {
    place_.offset = (place_.offset + 1) % dataset_size_;  // of the same epoch, so that no other order is needed
    key_.sample = sample_at_(place_);
  } else {
    key_.sample = static_cast<int64_t>(random_.below(dataset_size_));
  }
  return key_;
}

void BadSampleTally::add(const std::vector<BadSample>& bad) {
  const bool skipped = options_.policy == OnBadSample::kSkip;
  for (const BadSample& each : bad) {
    if (!samples_.insert(each.sample).second) continue;
    if (count() <= kShownSamples) {
      core::log::warning("bad sample {}: {}", skipped ? "skipped" : "replaced by another", each.error.what());
      if (count() == kShownSamples) core::log::warning("further bad samples are counted and not shown");
    }
    const int64_t allowed = options_.allowed(dataset_size_);
    if (count() > allowed && !over_budget_) {
      over_budget_ = Error(
          ErrorCode::kCorruptData,
          {.problem = "too many bad samples",
           .where = "the last of them: " + each.error.detail().where,
           .expected = fmt::format("at most {} of {} ({})", allowed, dataset_size_,
                                   options_.budget ? fmt::format("--bad_sample_budget={}", *options_.budget)
                                                   : "--bad_sample_budget is not given"),
           .actual = fmt::format("{}", count()),
           .remedy = "list them with trainyard data verify and write the files again, or raise --bad_sample_budget"});
    }
  }
  if (over_budget_) throw Error(*over_budget_);
}

void BadSampleTally::save(core::StateWriter& writer) const {
  if (!samples_.empty()) writer.text(kSaved, fmt::format("{}", fmt::join(samples_, " ")));
}

void BadSampleTally::load(const core::StateReader& reader) {
  samples_.clear();
  over_budget_.reset();
  if (!reader.has(kSaved)) return;
  std::istringstream numbers(reader.text(kSaved));
  for (int64_t sample = 0; numbers >> sample;) samples_.insert(sample);
}

}  // namespace trainyard::data
