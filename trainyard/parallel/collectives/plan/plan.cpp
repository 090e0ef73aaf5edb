#include "trainyard/parallel/collectives/plan/plan.h"

#include <algorithm>

#include "trainyard/parallel/collectives/plan/rank_reduction.h"

namespace trainyard::parallel {

int RankLayout::process_of(int rank) const {
  return static_cast<int>(std::upper_bound(first_ranks.begin(), first_ranks.end(), rank) - first_ranks.begin()) - 1;
}

int64_t chunk_elements(at::ScalarType type) {
  return kChunkBytes / static_cast<int64_t>(c10::elementSize(partial_type(type)));
}

size_t element_bytes(const CollectivePlan& plan, const Place& place, at::ScalarType type) {
  const bool sums = place.memory == Place::Memory::kScratch && plan.scratch[static_cast<size_t>(place.index)].sums;
  return c10::elementSize(sums ? partial_type(type) : type);
}

}  // namespace trainyard::parallel
