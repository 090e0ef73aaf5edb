#include "trainyard/data/sources/function_source.h"

#include <chrono>
#include <utility>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/data/sources/source_options.h"

namespace trainyard::data {

using core::Error, core::ErrorCode;

void FunctionSourceOptions::validate() const {
  require_at_least("the number of replicas", 1, replicas);
  require_at_least("the batch size", 1, batch_size);
  require_at_least("the number of batches in an epoch", 0, batches_per_epoch);
}

FunctionSource::FunctionSource(MakeBatch make, const FunctionSourceOptions& options)
    : make_(std::move(make)), options_(options) {
  options_.validate();
  if (!make_) throw Error(ErrorCode::kInvalidArgument, "a source of batches needs a function that makes them");
}

std::vector<Batch> FunctionSource::next() {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Batch> batches;
  for (int r = 0; r < options_.replicas; ++r) {
    batches.push_back(
        {.tensors = make_({.epoch = position_.epoch, .batch = position_.offset / samples_a_batch(), .replica = r}),
         .first_sample = r * options_.batch_size});
  }
  position_.offset += samples_a_batch();
  if (options_.batches_per_epoch > 0 && position_.offset >= options_.batches_per_epoch * samples_a_batch()) {
    position_ = {position_.epoch + 1, 0};
  }
  for (Batch& batch : batches) batch.after = position_;
  waited_seconds_ += core::seconds_since(begin);
  return batches;
}

void FunctionSource::seek(Position position) {
  position.offset -= position.offset % samples_a_batch();
  if (options_.batches_per_epoch > 0) {
    const int64_t samples = options_.batches_per_epoch * samples_a_batch();
    position = {position.epoch + position.offset / samples, position.offset % samples};
  }
  position_ = position;
}

}  // namespace trainyard::data
