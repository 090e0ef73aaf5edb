// Samples that cannot be read or decoded, and what a run does about them (docs/design/input_order.md).
//
//   fail        the run ends with the error of the sample.
//   skip        the next good sample of the epoch's order takes the place. In an exact evaluation nothing does: the
//               sample is left out and not counted.
//   substitute  a sample drawn from the whole data set takes the place.
//
// Which sample takes a place is a pure function of (seed, place in the order): no thread, replica or process needs to
// know what others have met. A batch keeps its size, and the order of epochs keeps its places.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/batch_source.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::data {

enum class OnBadSample { kFail, kSkip, kSubstitute };
// Returns the policy called "fail", "skip" or "substitute", as --on_bad_sample takes them. Throws kNotFound.
[[nodiscard]] OnBadSample on_bad_sample(std::string_view name);

struct BadSampleOptions {
  OnBadSample policy = OnBadSample::kFail;
  // Bad samples that a run may meet: up to 1 as a part of the data set's samples, above that as their number. Unset:
  // 0.0001, but at least ten, or half of a set of fewer than twenty.
  std::optional<double> budget{};
  void validate() const;  // throws kInvalidArgument
  // Returns the budget in samples, rounded down, but at least one. A budget of 0 is 0 samples.
  [[nodiscard]] int64_t allowed(int64_t dataset_size) const;
};

// A sample and why it is bad, with file and offset.
struct BadSample {
  int64_t sample = 0;
  core::Error error;
};

// Returns the error that ends a run at its first bad sample: `bad`, with what a user can do about it.
[[nodiscard]] core::Error failure_of(const core::Error& bad);

// What is tried in the place of a bad sample, one after the other.
class SubstituteSamples {
 public:
  using SampleAt = std::function<int64_t(Position)>;  // SampleSequence::sample_at

  // `bad` is the sample that belongs at `place`. The policy is skip or substitute.
  SubstituteSamples(OnBadSample policy, const SampleKey& bad, Position place, int64_t dataset_size, SampleAt sample_at);

  // Returns the next sample to try. Its augmentation has a seed of its own: the sample also comes at its own place, and
  // should not come twice alike.
  [[nodiscard]] SampleKey next();

 private:
  OnBadSample policy_;
  SampleKey key_;
  Position place_;
  int64_t dataset_size_;
  SampleAt sample_at_;
  core::RandomStream random_;
};

// The different bad samples that a run has met, told in the order of the batches, so that the run fails at the same
// batch whatever its threads do. One thread at a time.
class BadSampleTally : public core::Stateful {
 public:
  BadSampleTally(BadSampleOptions options, int64_t dataset_size) : options_(options), dataset_size_(dataset_size) {}

  // Adds the bad samples that are new; the first ten of the run are logged. Throws kCorruptData, at every call, once
  // there are more than the budget allows.
  void add(const std::vector<BadSample>& bad);
  int64_t count() const { return static_cast<int64_t>(samples_.size()); }

  // Saves "bad_samples", when there are any: a resumed run goes on with what is left of the budget.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  BadSampleOptions options_;
  int64_t dataset_size_;
  std::set<int64_t> samples_;
  std::optional<core::Error> over_budget_;
};

}  // namespace trainyard::data
TRAINYARD_EXPORT_END
