// Batch norm statistics of a training in several processes. Each replica's are those of its own batches; rank 0's are
// the ones that are saved, and that all ranks evaluate with.
#pragma once

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::train {

// Collective: replaces the buffers of `parameters` by those of rank 0, which has the same declarations. Between steps,
// on an accelerator within its use(). What is saved and how training goes on do not change by it: other ranks' running
// statistics are read by nobody else.
void take_statistics_of_first(parallel::ProcessGroup& ranks, nn::ParameterSet& parameters);

}  // namespace trainyard::train
