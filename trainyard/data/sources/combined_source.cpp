#include "trainyard/data/sources/combined_source.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/scoped_state.h"

namespace trainyard::data {
namespace {

std::string scope_of(size_t index) {
  return fmt::format("{}/", index);
}

}  // namespace

CombinedSource::CombinedSource(std::vector<std::shared_ptr<BatchSource>> sources)
    : sources_(std::move(sources)), taken_(sources_.size()), before_(sources_.size()) {
  if (sources_.empty()) throw core::Error(core::ErrorCode::kInvalidArgument, "there is no source to combine");
  for (size_t i = 0; i < size(); ++i) {
    if (sources_[i]) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument, fmt::format("source {} of a combination is null", i));
  }
}

void CombinedSource::require_same_replicas() const {
  for (size_t i = 0; i < size(); ++i) {
    if (source(i).replicas() == source(0).replicas()) continue;
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = fmt::format("source {} of a combination has another number of replicas than source 0", i),
         .expected = std::to_string(source(0).replicas()),
         .actual = std::to_string(source(i).replicas())});
  }
}

int64_t CombinedSource::batch_size() const {
  int64_t largest = 0;
  for (const auto& source : sources_) largest = std::max(largest, source->batch_size());
  return largest;
}

const std::vector<Batch>& CombinedSource::taken(size_t index) {
  if (!taken_[index]) {
    before_[index] = source(index).position();
    taken_[index] = source(index).next();
  }
  return *taken_[index];
}

// Batches are not saved: a run that continues would pair them with those of the sources that have made none.
void CombinedSource::put_back_taken() const {
  for (size_t i = 0; i < size(); ++i) {
    if (!taken_[i]) continue;
    if (!taken_[i]->empty()) source(i).seek(before_[i]);
    taken_[i].reset();
  }
}

std::vector<Batch> CombinedSource::next() {
  std::vector<Batch> batches = next_batches();
  taken_.assign(size(), std::nullopt);
  if (batches.empty()) return batches;
  ++batches_;
  for (const Batch& batch : batches) samples_ += batch.samples();
  for (Batch& batch : batches) batch.after = position();
  return batches;
}

double CombinedSource::waited_seconds() const {
  double seconds = 0;
  for (const auto& source : sources_) seconds += source->waited_seconds();
  return seconds;
}

void CombinedSource::stop() {
  for (const auto& source : sources_) source->stop();
}

void CombinedSource::seek(Position position) {
  if (position != Position{}) {
    if (position == this->position()) return;
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "several sources cannot go to a position together",
                       .actual = fmt::format("epoch {}, offset {}", position.epoch, position.offset),
                       .remedy = "save() the source and load() it, which keeps the place of each"});
  }
  for (const auto& source : sources_) source->seek({});
  taken_.assign(size(), std::nullopt);
  batches_ = samples_ = 0;
}

int64_t CombinedSource::bad_samples() const {
  int64_t bad = 0;
  for (const auto& source : sources_) bad += source->bad_samples();
  return bad;
}

void CombinedSource::save(core::StateWriter& writer) const {
  put_back_taken();
  writer.integer("sources", static_cast<int64_t>(size()));
  writer.integer("batches", batches_);
  writer.integer("samples", samples_);
  for (size_t i = 0; i < size(); ++i) {
    core::ScopedWriter scope(writer, scope_of(i));
    source(i).save(scope);
  }
}

void CombinedSource::load(const core::StateReader& reader) {
  if (const int64_t saved = reader.integer("sources"); saved != static_cast<int64_t>(size())) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a run goes on with another number of combined sources",
                       .expected = std::to_string(saved),
                       .actual = std::to_string(size()),
                       .remedy = "combine the sources with which the run began"});
  }
  for (size_t i = 0; i < size(); ++i) source(i).load(core::ScopedReader(reader, scope_of(i)));
  taken_.assign(size(), std::nullopt);
  batches_ = reader.integer("batches");
  samples_ = reader.integer("samples");
}

}  // namespace trainyard::data
