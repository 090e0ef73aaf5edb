// Selects the values that a plan discards after the forward and recomputes in the backward (nn::Recomputation).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/nn/cpu/plan/plan.h"
#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn::cpu {

// Returns the values to discard, by ValueId. `steps` are a plan's, in forward order; `bytes` is by ValueId. Never
// discards a value that no step can recompute, or that a backward reads from the forward's buffer.
//
// kNone: discards the outputs of activations on their own (GELU between two linear layers), whose inputs the backward
// reads in any case: a fifth of the memory of a vision transformer, for a percent of its time.
//
// kElementwise: discards the results of cheap steps, unless that keeps more bytes live only for the recomputation than
// it frees.
//
// kBlocks: cuts the network at values which are all that later steps read of earlier ones, and discards the others. The
// cuts minimize the sum of the kept bytes and of the largest segment between two cuts. Values after the last cut are
// kept, too: the backward begins there.
std::vector<bool> values_to_discard(const std::vector<std::unique_ptr<PlanStep>>& steps,
                                    const std::vector<int64_t>& bytes, Recomputation recomputation);

}  // namespace trainyard::nn::cpu
