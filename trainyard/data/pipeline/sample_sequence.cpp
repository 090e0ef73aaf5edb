#include "trainyard/data/pipeline/sample_sequence.h"

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {

SampleSequence::SampleSequence(int64_t size, OrderOptions order, uint64_t seed, int64_t repeats,
                               const std::vector<int64_t>* balanced_labels)
    : size_(size), order_(order), seed_(seed), repeats_(repeats) {
  if (balanced_labels != nullptr) balanced_.emplace(*balanced_labels, seed);
}

Position SampleSequence::normalized(Position position) const {
  if (position.epoch < 0 || position.offset < 0 || position.offset > size_) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "input position is not in the data set",
                       .expected = fmt::format("an offset in [0, {}]", size_),
                       .actual = fmt::format("epoch {}, offset {}", position.epoch, position.offset),
                       .remedy = "resume with the data set with which the run began"});
  }
  if (position.offset == size_) return {position.epoch + 1, 0};
  return position;
}

Position SampleSequence::advanced(Position position, int64_t count) const {
  const int64_t offset = position.offset + count;
  return {position.epoch + offset / size_, offset % size_};
}

RepeatedSample SampleSequence::repeated_sample_at(Position position) {
  if (balanced_) return balanced_draws_of(position.epoch)[position.offset];
  if (repeats_ == 1) return {.sample = order_of(position.epoch)[position.offset]};
  const int64_t place = position.epoch * size_ + position.offset;
  const int64_t block = place / (2 * repeats_), within = place % (2 * repeats_);
  const int64_t different = 2 * block + within % 2;  // samples before this one
  return {.sample = order_of(different / size_)[different % size_], .copy = within / 2};
}

const std::vector<int64_t>& SampleSequence::order_of(int64_t pass) {
  auto found = orders_.find(pass);
  if (found == orders_.end()) {
    while (orders_.size() > 1) orders_.erase(orders_.begin());
    found = orders_.emplace(pass, epoch_order(size_, order_, seed_, pass)).first;
  }
  return found->second;
}

const std::vector<RepeatedSample>& SampleSequence::balanced_draws_of(int64_t epoch) {
  auto found = balanced_draws_.find(epoch);
  if (found == balanced_draws_.end()) {
    while (balanced_draws_.size() > 1) balanced_draws_.erase(balanced_draws_.begin());
    found = balanced_draws_.emplace(epoch, balanced_->draws(epoch * size_, size_)).first;
  }
  return found->second;
}

}  // namespace trainyard::data
