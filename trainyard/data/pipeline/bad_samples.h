// Handles samples that cannot be read or decoded (docs/design/input_order.md).
//
//   fail        the run ends with the error of the sample.
//   skip        the next good sample of the epoch's order takes the place. In an exact evaluation nothing does: the
//               sample is left out and not counted.
//   substitute  a sample drawn from the whole data set takes the place.
//
// The substitute is a pure function of (seed, position in the order): no thread, replica or process needs to know the
// bad samples of others. Batches keep their size, and all other samples keep their positions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/core/random/random.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/data/pipeline/batch_source.h"
#include "trainyard/data/pipeline/pipeline.h"

namespace trainyard::data {

// Returns the policy called "fail", "skip" or "substitute", as --on_bad_sample takes them. Throws kNotFound.
[[nodiscard]] OnBadSample on_bad_sample(std::string_view name);

// A sample and why it is bad, with file and offset.
struct BadSample {
  int64_t sample = 0;
  core::Error error;
};

// Returns the error that ends a run at its first bad sample: `bad`, with what a user can do about it.
[[nodiscard]] core::Error failure_of(const core::Error& bad);

// The samples that are tried instead of a bad one, one after the other.
class SubstituteSamples {
 public:
  using SampleAt = std::function<int64_t(Position)>;  // SampleSequence::sample_at

  // `bad` is the sample at `place`. The policy is skip or substitute.
  SubstituteSamples(OnBadSample policy, const SampleKey& bad, Position place, int64_t dataset_size, SampleAt sample_at);

  // Returns the next sample to try. Its augmentation has a seed of its own, so that it differs from the one that the
  // sample gets at its own position.
  [[nodiscard]] SampleKey next();

 private:
  OnBadSample policy_;
  SampleKey key_;
  Position place_;
  int64_t dataset_size_;
  SampleAt sample_at_;
  core::RandomStream random_;
};

// Counts the different bad samples of a run, in the order of the batches, so that the run fails at the same batch
// whatever its threads do. One thread at a time.
class BadSampleTally : public core::Stateful {
 public:
  BadSampleTally(BadSampleOptions options, int64_t dataset_size) : options_(options), dataset_size_(dataset_size) {}

  // Adds bad samples that are new, and logs the first ten of the run. Throws kCorruptData, at every call, once they
  // exceed the budget.
  void add(const std::vector<BadSample>& bad);
  int64_t count() const { return static_cast<int64_t>(samples_.size()); }

  // Saves "bad_samples", when there are any: a resumed run continues with the rest of the budget.
  void save(core::StateWriter& writer) const override;
  void load(const core::StateReader& reader) override;

 private:
  BadSampleOptions options_;
  int64_t dataset_size_;
  std::set<int64_t> samples_;
  std::optional<core::Error> over_budget_;
};

}  // namespace trainyard::data
