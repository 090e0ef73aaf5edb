#include "trainyard/data/sources/tensor_source.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/base/error.h"
#include "trainyard/data/pipeline/sample_sequence.h"
#include "trainyard/data/sources/source_options.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

int64_t samples_in(const core::NamedTensors& tensors) {
  if (tensors.empty()) throw Error(ErrorCode::kInvalidArgument, "a source of samples needs at least one tensor");
  const core::NamedTensors::Entry& first = *tensors.begin();
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dim() == 0) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("tensor '{}' has no dimension of samples", name),
                                                .remedy = "give each tensor the samples as its first dimension"});
    }
    if (tensor.size(0) == first.tensor.size(0)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("tensor '{}' holds another number of samples than '{}'", name, first.name),
                 .expected = std::to_string(first.tensor.size(0)),
                 .actual = std::to_string(tensor.size(0))});
  }
  if (first.tensor.size(0) == 0) throw Error(ErrorCode::kInvalidArgument, "the tensors of a source hold no samples");
  return first.tensor.size(0);
}

TensorSourceOptions checked_options(TensorSourceOptions options) {
  options.validate();
  if (options.total_replicas == 0) options.total_replicas = options.replicas;
  return options;
}

}  // namespace

core::NamedTensors select_samples(const core::NamedTensors& tensors, const std::vector<int64_t>& samples) {
  const at::Tensor rows = at::tensor(samples, at::kLong);
  core::NamedTensors selected;
  for (const auto& [name, tensor] : tensors) {
    selected.set(name, at::index_select(tensor, 0, rows.to(tensor.device())));
  }
  return selected;
}

void TensorSourceOptions::validate() const {
  require_at_least("the batch size", 1, batch_size);
  require_at_least("the number of replicas", 1, replicas);
  require_at_least("the first replica", 0, first_replica);
  const int local_end = first_replica + replicas;
  if (total_replicas != 0 || first_replica != 0)
    require_at_least("the number of all replicas", local_end, total_replicas);
}

TensorSource::TensorSource(core::NamedTensors tensors, TensorSourceOptions options)
    : tensors_(std::move(tensors)),
      options_(checked_options(std::move(options))),
      size_(samples_in(tensors_)),
      global_batch_(options_.batch_size * options_.total_replicas),
      sequence_(std::make_shared<SampleSequence>(
          size_, OrderOptions{.shuffle = options_.shuffle, .shuffle_buffer = size_}, options_.seed)) {
  if (!options_.drop_last || size_ >= global_batch_) return;
  throw Error(ErrorCode::kInvalidArgument, {.problem = "without the last, short batch there is none at all",
                                            .expected = fmt::format("at least {} samples", global_batch_),
                                            .actual = std::to_string(size_),
                                            .remedy = "keep the last batch, or make batches smaller"});
}

TensorSource::TensorSource(const at::Tensor& images, const at::Tensor& labels, TensorSourceOptions options)
    : TensorSource({{"images", images}, {"labels", labels}}, std::move(options)) {}

std::vector<Batch> TensorSource::next() {
  const auto begin = std::chrono::steady_clock::now();
  const int64_t left = size_ - position_.offset;
  const bool refills = options_.repeat && !options_.drop_last;
  const int64_t taken = refills ? global_batch_ : std::min(global_batch_, left);
  if (taken == 0 || (options_.drop_last && taken < global_batch_)) return {};
  std::vector<Batch> batches;
  for (int r = 0; r < options_.replicas; ++r) {
    const int64_t first = (options_.first_replica + r) * options_.batch_size;
    const int64_t count = std::clamp<int64_t>(taken - first, 0, options_.batch_size);
    batches.push_back({.tensors = make(first, count), .first_sample = first});
  }
  position_ =
      refills ? sequence_->advanced(position_, taken) : of_next_batch({position_.epoch, position_.offset + taken});
  for (Batch& batch : batches) batch.after = position_;
  waited_seconds_ += core::seconds_since(begin);
  return batches;
}

core::NamedTensors TensorSource::make(int64_t first, int64_t count) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < count; ++i) {
    samples.push_back(sequence_->sample_at(sequence_->advanced(position_, first + i)));
  }
  if (!options_.make_batch) return select_samples(tensors_, samples);
  if (samples.empty()) return {};
  const Position place = sequence_->advanced(position_, first);
  core::RandomStream random(options_.seed, "make_batch",
                            {static_cast<uint64_t>(place.epoch), static_cast<uint64_t>(place.offset)});
  return options_.make_batch(tensors_, samples, random);
}

Position TensorSource::of_next_batch(Position position) const {
  const int64_t least = options_.drop_last ? global_batch_ : 1;
  if (options_.repeat && size_ - position.offset < least) return {position.epoch + 1, 0};
  return position;
}

void TensorSource::seek(Position position) {
  static_cast<void>(sequence_->normalized(position));  // throws where there is no such place
  position_ = of_next_batch(position);
}

}  // namespace trainyard::data
