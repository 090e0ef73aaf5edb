#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/random/random.h"
#include "trainyard/data/sources/combined_source.h"

namespace trainyard::data {
namespace {

std::vector<std::shared_ptr<BatchSource>> sources_of(const std::vector<MixedPart>& parts) {
  std::vector<std::shared_ptr<BatchSource>> sources;
  for (const MixedPart& part : parts) sources.push_back(part.source);
  return sources;
}

std::string ended_name(size_t index) {
  return fmt::format("ended/{}", index);
}

}  // namespace

MixedSource::MixedSource(const std::vector<MixedPart>& parts, const MixedSourceOptions& options)
    : CombinedSource(sources_of(parts)), options_(options), ended_(parts.size()) {
  require_same_replicas();
  for (const MixedPart& part : parts) {
    if (!(part.weight > 0 && std::isfinite(part.weight))) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = fmt::format("source {} cannot be mixed by its weight", weights_.size()),
                         .expected = "a positive number",
                         .actual = fmt::format("{}", part.weight),
                         .remedy = "leave out a source that is not wanted"});
    }
    weights_.push_back(part.weight);
  }
}

std::vector<Batch> MixedSource::next_batches() {
  core::RandomStream random(options_.seed, "mixed_source", {static_cast<uint64_t>(batches())});
  while (std::find(ended_.begin(), ended_.end(), false) != ended_.end()) {
    const size_t index = drawn(random.uniform_double());
    std::vector<Batch> batches = source(index).next();
    if (!batches.empty() || !options_.continue_without_ended) return batches;
    ended_[index] = true;
  }
  return {};
}

size_t MixedSource::drawn(double fraction) const {
  double left = 0;
  for (size_t i = 0; i < size(); ++i) left += ended_[i] ? 0 : weights_[i];
  left *= fraction;
  size_t last = 0;  // where rounding leaves a little at the end
  for (size_t i = 0; i < size(); ++i) {
    if (ended_[i]) continue;
    last = i;
    left -= weights_[i];
    if (left < 0) break;
  }
  return last;
}

void MixedSource::seek(Position position) {
  CombinedSource::seek(position);
  if (position == Position{}) ended_.assign(size(), false);
}

void MixedSource::save(core::StateWriter& writer) const {
  CombinedSource::save(writer);
  for (size_t i = 0; i < size(); ++i) writer.integer(ended_name(i), ended_[i] ? 1 : 0);
}

void MixedSource::load(const core::StateReader& reader) {
  CombinedSource::load(reader);
  for (size_t i = 0; i < size(); ++i) ended_[i] = reader.integer(ended_name(i)) != 0;
}

}  // namespace trainyard::data
