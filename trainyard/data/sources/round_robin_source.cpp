#include "trainyard/data/sources/round_robin_source.h"

#include <string>
#include <utility>

#include "trainyard/core/base/error.h"

namespace trainyard::data {

RoundRobinSource::RoundRobinSource(std::shared_ptr<BatchSource> source, int replicas, bool repeat)
    : SourceDecorator(std::move(source)), replicas_(replicas), repeat_(repeat) {
  if (this->source() != nullptr && this->source()->replicas() == 1 && replicas_ >= 1) return;
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      {.problem = "batches cannot be dealt to replicas",
       .expected = "a source of one batch at a time, and at least 1 replica",
       .actual = (this->source() == nullptr ? "no source" : std::to_string(this->source()->replicas()) + " at a time") +
                 ", " + std::to_string(replicas_) + " replicas"});
}

std::optional<Batch> RoundRobinSource::taken_batch() {
  std::vector<Batch> batches = source()->next();
  // The last batches of an epoch may be there without samples.
  const bool ended = batches.empty() || (!batches[0].tensors.empty() && batches[0].samples() == 0);
  if (ended) return std::nullopt;
  return std::move(batches[0]);
}

Batch RoundRobinSource::repeated_batch() {
  if (std::optional<Batch> batch = taken_batch()) return *std::move(batch);
  source()->seek({.epoch = source()->position().epoch + 1});
  if (std::optional<Batch> batch = taken_batch()) return *std::move(batch);
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "a source of batches has none", .expected = "at least one in an epoch"});
}

std::vector<Batch> RoundRobinSource::next() {
  std::vector<Batch> batches;
  for (int r = 0; r < replicas_; ++r) {
    std::optional<Batch> batch = repeat_ ? repeated_batch() : taken_batch();
    if (!batch) return {};
    batches.push_back(*std::move(batch));
    batches.back().first_sample = r * batch_size();
  }
  for (Batch& batch : batches) batch.after = source()->position();
  return batches;
}

}  // namespace trainyard::data
