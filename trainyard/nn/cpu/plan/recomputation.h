// Which values a plan does not keep until the backward, but makes again there (nn::Recomputation).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainyard/nn/cpu/plan/plan.h"
#include "trainyard/nn/execution/executor.h"

namespace trainyard::nn::cpu {

// By ValueId, of a plan's forward steps in their order; `bytes` by ValueId. Forgotten is never what nobody can make
// again, or what a backward reads where the forward had it.
//
// kElementwise: what cheap steps give, unless that keeps more alive that nobody else needs than it frees.
// kBlocks: all but the places where the network is cut: values that alone lead from the steps before to those behind
// them. They are chosen so that what is kept and the largest segment between two of them together are smallest. What
// lies behind the last cut is kept, too: the backward begins there.
std::vector<bool> values_to_forget(const std::vector<std::unique_ptr<PlanStep>>& steps,
                                   const std::vector<int64_t>& bytes, Recomputation recomputation);

}  // namespace trainyard::nn::cpu
