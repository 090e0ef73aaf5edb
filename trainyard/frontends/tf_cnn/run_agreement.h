// Checks between the processes of a run before they begin.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::frontends {

// Each is collective, with run.device.processes. They throw what parallel::require_same_facts() throws.

// Checks flags and program. It is the first exchange between ranks.
void require_same_flags(const PreparedRun& run);
// Checks layers, parameters and how they are computed, samples, files and classes. Call it once the data are open.
void require_same_model_and_data(const PreparedRun& run);

// Collective: calls `size` on rank 0 and returns its result on all ranks. Throws what it throws.
nn::Size2d size_of_first(parallel::ProcessGroup& ranks, const std::string& what,
                         const std::function<nn::Size2d()>& size);

// Collective: returns the smallest of all ranks' numbers.
int64_t smallest_of_ranks(parallel::ProcessGroup& ranks, int64_t own);

}  // namespace trainyard::frontends
