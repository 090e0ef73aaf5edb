#include "trainyard/data/sources/switched_source.h"

#include <string>
#include <utility>

#include "trainyard/core/base/error.h"

namespace trainyard::data {
namespace {

void require_replicas(int64_t actual, int expected) {
  if (actual == expected) return;
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "the input must give one batch a replica",
                                                        .expected = std::to_string(expected),
                                                        .actual = std::to_string(actual)});
}

}  // namespace

SwitchedSource::SwitchedSource(int64_t batch_size, int replicas) : batch_size_(batch_size), replicas_(replicas) {}

void SwitchedSource::hand(std::vector<Batch> batches) {
  require_replicas(std::ssize(batches), replicas_);
  handed_ = std::move(batches);
}

void SwitchedSource::attach(std::shared_ptr<BatchSource> source) {
  if (source == source_) return;
  require_replicas(source == nullptr ? 0 : source->replicas(), replicas_);
  const Position position = this->position();
  source_ = std::move(source);
  if (source_->position() != position) source_->seek(position);
}

std::vector<Batch> SwitchedSource::next() {
  if (!handed_.empty()) return std::exchange(handed_, {});
  if (source_ != nullptr) return source_->next();
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "there is no batch", .remedy = "hand one over, or attach a source"});
}

void SwitchedSource::stop() {
  if (source_ != nullptr) source_->stop();
}

Position SwitchedSource::position() const {
  return source_ == nullptr ? position_ : source_->position();
}

void SwitchedSource::seek(Position position) {
  position_ = position;
  if (source_ != nullptr) source_->seek(position);
}

}  // namespace trainyard::data
