#include "trainyard/data/sources/dealt_source.h"

#include <string>
#include <utility>

#include "trainyard/core/base/error.h"

namespace trainyard::data {

DealtSource::DealtSource(std::shared_ptr<BatchSource> source, int replicas)
    : SourceAround(std::move(source)), replicas_(replicas) {
  if (this->source() != nullptr && this->source()->replicas() == 1 && replicas_ >= 1) return;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = "batches cannot be dealt to replicas",
       .expected = "a source of one batch at a time, and at least 1 replica",
       .actual = (this->source() == nullptr ? "no source" : std::to_string(this->source()->replicas()) + " at a time") +
                 ", " + std::to_string(replicas_) + " replicas"});
}

Batch DealtSource::next_batch() {
  for (const bool begun_again : {false, true}) {
    std::vector<Batch> batches = source()->next();
    // The last batches of an epoch may be there without samples.
    const bool ended = batches.empty() || (!batches[0].tensors.empty() && batches[0].samples() == 0);
    if (!ended) return std::move(batches[0]);
    if (!begun_again) source()->seek({.epoch = source()->position().epoch + 1});
  }
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "a source of batches has none", .expected = "at least one in an epoch"});
}

std::vector<Batch> DealtSource::next() {
  std::vector<Batch> batches;
  for (int r = 0; r < replicas_; ++r) {
    batches.push_back(next_batch());
    batches.back().first_sample = r * batch_size();
  }
  for (Batch& batch : batches) batch.after = source()->position();
  return batches;
}

}  // namespace trainyard::data
