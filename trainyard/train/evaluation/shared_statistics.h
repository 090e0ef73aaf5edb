// Shares batch norm statistics in a training of several processes. Each replica has those of its own batches; rank 0's
// are saved, and all ranks evaluate with them.
#pragma once

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::train {

// Collective: replaces the buffers of `parameters` by those of rank 0, which has the same declarations. Call it between
// steps, on an accelerator within its use(). It changes neither checkpoints nor the further training, because the
// running statistics of other ranks are not used otherwise.
void take_statistics_of_first(parallel::ProcessGroup& ranks, nn::ParameterSet& parameters);

}  // namespace trainyard::train
