// NCCL between processes of one rank, and so one GPU, each. The process group carries NCCL's id, tells two processes on
// one GPU apart before NCCL would, and lets the others hear of an error that ends one of them.
#pragma once

#include <chrono>
#include <memory>

#include "trainyard/parallel/collectives/nccl/nccl_communicator.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel {

// Joins. Collective over the processes of the group, which outlives the communicator. Throws as
// make_nccl_communicators() does.
std::unique_ptr<core::Communicator> join_nccl_processes(const std::shared_ptr<NcclLibrary>& library,
                                                        const std::shared_ptr<ProcessGroup>& processes,
                                                        at::Device device, std::chrono::milliseconds deadline);

}  // namespace trainyard::parallel
