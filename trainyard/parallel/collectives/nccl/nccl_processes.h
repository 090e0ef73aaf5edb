// NCCL between processes with one rank, and so one GPU, each. The process group distributes NCCL's id, detects two
// processes on one GPU before NCCL would, and reports an error of one process to the others.
#pragma once

#include <chrono>
#include <memory>

#include "trainyard/parallel/collectives/nccl/nccl_communicator.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel {

// Joins NCCL's communicator. Collective over the processes of the group, which must outlive the communicator. Throws as
// make_nccl_communicators() does.
std::unique_ptr<core::Communicator> join_nccl_processes(const std::shared_ptr<NcclLibrary>& library,
                                                        const std::shared_ptr<ProcessGroup>& processes,
                                                        at::Device device, std::chrono::milliseconds deadline);

}  // namespace trainyard::parallel
