// Makes the communicators of a training's GPUs, whether its replicas are in one process or in one process each.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Device.h>

#include "trainyard/core/base/communicator.h"
#include "trainyard/parallel/process_group/process_group.h"

namespace trainyard::parallel {

// Returns one communicator for each of `devices`, in their order. Without `processes` they connect these devices. With
// `processes`, which must outlive the communicators, they connect the devices of all processes, one each. Logs the
// version of NCCL. Collective over the processes. Throws kUnsupported when NCCL is not available, and as
// make_nccl_communicators().
std::vector<std::unique_ptr<core::Communicator>> make_gpu_communicators(const std::vector<c10::Device>& devices,
                                                                        const std::shared_ptr<ProcessGroup>& processes);

}  // namespace trainyard::parallel
