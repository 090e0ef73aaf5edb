// Algorithms with their settings, by the size of the tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/parallel/collectives/plan/algorithm.h"

namespace trainyard::parallel {

struct ConfiguredRange {
  std::string algorithm;                 // a name of collective_algorithms()
  std::optional<int64_t> limit_bytes{};  // largest tensor of this range; nullopt: all larger ones (the last range)
  int64_t shards = 1;                    // CollectiveRequest::shards
  int64_t chunk_bytes = kChunkBytes;     // CollectiveRequest::chunk_bytes
  std::optional<at::ScalarType> wire{};  // CollectivePlan::wire
  // True: the algorithm is told that each process has a machine of its own, so that it takes the ranks in their order.
  bool in_rank_order = false;
};

// Returns the choice of an all-reduce's algorithm by the bytes of the tensor: the first range whose limit is not below
// them. For an all-reduce of no elements it throws what a range's plan throws, kInvalidArgument, when the layout does
// not fit one of them. Other collectives get the default algorithm. Throws kNotFound for an unknown algorithm.
AlgorithmChoice choice_by_size(const std::vector<ConfiguredRange>& ranges);

}  // namespace trainyard::parallel
