// Which gradients are joined into one tensor before they are all-reduced (GradientPacking in variable_update.h).
// Gradients are one block of memory in the order in which a backward completes them, so a pack is a slice of it, and
// nothing is copied.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/collectives/gradient_buckets.h"
#include "trainyard/parallel/variable_update/variable_update.h"

namespace trainyard::parallel {

// Returns the tensors that are all-reduced, in the order of memory; together they hold all gradients. A tensor of
// several gradients includes the gaps between them. `packing` must not be the default.
std::vector<GradientSlice> pack_gradients(const nn::ParameterSet& set, const GradientPacking& packing);

// Runs of consecutive numbers, first and last, and the numbers that are in none.
struct IndexRanges {
  std::vector<std::pair<size_t, size_t>> ranges{};
  std::vector<size_t> singles{};
};
// Splits ascending numbers into runs of at most `most` each, which is above 0. A run of more becomes several.
IndexRanges extract_ranges(const std::vector<size_t>& indices, size_t most);

}  // namespace trainyard::parallel
