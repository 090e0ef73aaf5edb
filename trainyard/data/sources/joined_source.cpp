#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/sources/combined_source.h"

namespace trainyard::data {

using core::Error;
using core::ErrorCode;

JoinedSource::JoinedSource(std::vector<std::shared_ptr<BatchSource>> sources) : CombinedSource(std::move(sources)) {
  for (size_t i = 0; i < size(); ++i) {
    if (source(i).replicas() == 1) continue;
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = fmt::format("source {} makes batches for several replicas, and is joined as one's", i),
                 .expected = "1 replica",
                 .actual = std::to_string(source(i).replicas())});
  }
}

std::vector<Batch> JoinedSource::next_batches() {
  std::vector<Batch> joined(size());
  bool all_ended = true;
  int64_t first_sample = 0;
  for (size_t i = 0; i < size(); ++i) {
    const std::vector<Batch>& own = taken(i);
    all_ended = all_ended && own.empty();
    if (!own.empty()) joined[i] = own.front();
    joined[i].first_sample = first_sample;
    first_sample += source(i).batch_size();
  }
  if (all_ended) return {};
  return joined;
}

ZippedSource::ZippedSource(std::vector<std::shared_ptr<BatchSource>> sources) : CombinedSource(std::move(sources)) {
  require_same_replicas();
}

std::vector<Batch> ZippedSource::next_batches() {
  std::vector<Batch> zipped = taken(0);
  for (size_t i = 1; i < size() && !zipped.empty(); ++i) {
    const std::vector<Batch>& added = taken(i);
    if (added.empty()) return {};
    for (size_t r = 0; r < zipped.size(); ++r) {
      for (const auto& [name, tensor] : added[r].tensors) {
        if (zipped[r].tensors.has(name)) {
          throw Error(ErrorCode::kInvalidArgument,
                      {.problem = fmt::format("two sources side by side give a tensor named '{}'", name),
                       .where = fmt::format("source {}, replica {}", i, r),
                       .remedy = "name the tensors of each source apart"});
        }
        zipped[r].tensors.set(name, tensor);
      }
    }
  }
  return zipped;
}

}  // namespace trainyard::data
