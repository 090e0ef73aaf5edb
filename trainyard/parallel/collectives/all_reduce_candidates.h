// The algorithms among which processes choose by measuring (measured_all_reduce.h).
//
// Algorithms that add in the order of the ranks give the same bits, so which of them runs is a matter of speed alone:
//
//   shared_memory         the exchange without messages (shared_memory/), where all ranks are on one machine
//   chain, chain/64K, chain/1M    algorithms/chain.cpp in chunks of 256 KiB, 64 KiB or 1 MiB
//   shuffle#n             algorithms/shuffle.cpp, ranks in their order, with n places
//
// Other algorithms add in other orders: those of an all_reduce_spec. They are chosen on request only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trainyard/parallel/collectives/algorithms/configured_algorithm.h"
#include "trainyard/parallel/collectives/plan/plan.h"

namespace trainyard::parallel {

// Which algorithms are measured.
enum class AllReduceOrder {
  kOfRanks,  // those that give the bits of the default algorithm
  kAny       // and those of an all_reduce_spec
};

// The name of the exchange without messages, and of a choice of kAny to reduce as without a spec.
constexpr const char* kSharedMemoryName = "shared_memory";
constexpr const char* kDefaultName = "default";

// Returns the names above without shards: what a spec of kOfRanks may consist of.
const std::vector<std::string>& algorithms_in_rank_order();

// Return the names of the algorithms of messages that a layout allows, the preferred ones first: those in the order of
// the ranks, the first of which runs where nothing was measured, and those of an all_reduce_spec. The same on all
// processes.
std::vector<std::string> candidates_in_rank_order(const RankLayout& layout);
std::vector<std::string> candidates_of_specs(const RankLayout& layout);

// Returns the ranges of a spec of messages. Throws kInvalidArgument for a spec that is not of this order.
std::vector<ConfiguredRange> ranges_of(const std::string& spec, AllReduceOrder order,
                                       const std::optional<at::ScalarType>& wire = {});
// Returns whether a spec of messages is of this order and can run on this layout. The same on all processes.
bool fits_layout(const std::string& spec, AllReduceOrder order, const RankLayout& layout);

}  // namespace trainyard::parallel
