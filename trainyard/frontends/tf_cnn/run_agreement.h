// What several processes that run together make sure of before they begin.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::frontends {

// Collective, each, with run.device.processes. They throw what parallel::require_same_facts() throws.

// The first thing that ranks say to each other: what they are asked for, and by which program.
void require_same_flags(const PreparedRun& run);
// Once the data are open: layers, parameters, how they are computed; samples, files and classes.
void require_same_model_and_data(const PreparedRun& run);

// Collective: returns on all ranks what `size` returns on rank 0, where alone it is called. Throws what it throws.
nn::Size2d size_of_first(parallel::ProcessGroup& ranks, const std::string& what,
                         const std::function<nn::Size2d()>& size);

// Collective: returns the smallest of all ranks' numbers.
int64_t smallest_of_ranks(parallel::ProcessGroup& ranks, int64_t own);

}  // namespace trainyard::frontends
