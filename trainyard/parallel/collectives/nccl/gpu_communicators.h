// What the GPUs of a training exchange gradients with, whether its replicas live in one process or in one each.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Device.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel {

// Returns one communicator for each of `devices`, in their order: between them, or, with `processes`, which outlives
// the communicators, between those of all processes, of which each has one device. Logs the version of NCCL. Collective
// over the processes. Throws kUnsupported where NCCL is not there, and as make_nccl_communicators().
std::vector<std::unique_ptr<core::Communicator>> make_gpu_communicators(const std::vector<c10::Device>& devices,
                                                                        const std::shared_ptr<ProcessGroup>& processes);

}  // namespace trainyard::parallel
