#include "trainyard/data/pipeline/sample_sequence.h"

#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::data {

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

int64_t SampleSequence::sample_at(Position position) {
  auto found = orders_.find(position.epoch);
  if (found == orders_.end()) {
    while (orders_.size() > 1) orders_.erase(orders_.begin());
    found = orders_.emplace(position.epoch, epoch_order(size_, order_, seed_, position.epoch)).first;
  }
  return found->second[position.offset];
}

}  // namespace trainyard::data
