// Which values a plan does not keep until the backward, but makes again there (nn::Recomputation).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/nn/cpu/plan/plan.h"
#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn::cpu {

// Returns the values to discard, by ValueId. `steps` are a plan's, in forward order; `bytes` is by ValueId. Never
// discards a value that no step can make again, or that a backward reads where the forward had it.
//
// kElementwise: discards what cheap steps make, unless that keeps more bytes alive, which nobody else needs, than it
// frees.
//
// kBlocks: cuts the network at values that are all that later steps read of earlier ones, and discards the others. The
// cuts are chosen so that the bytes that are kept and those of the largest segment between two cuts are smallest
// together. What lies behind the last cut is kept, too: the backward begins there.
std::vector<bool> values_to_discard(const std::vector<std::unique_ptr<PlanStep>>& steps,
                                    const std::vector<int64_t>& bytes, Recomputation recomputation);

}  // namespace trainyard::nn::cpu
