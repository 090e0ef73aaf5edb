// Collectives between GPUs by NCCL: ranks that are replicas of this process, each used by its replica's thread, or one
// rank a process. Work goes to the calling thread's current stream (nn::Accelerator::use()).
//
//   const auto library = parallel::open_nccl();
//   auto communicators = parallel::make_nccl_communicators(
//       library, {.id = library->unique_id(), .size = 2, .devices = {gpu_0->device(), gpu_1->device()}});
//
// As core::Communicator says, but that it cannot see what the peers call: ranks that do not agree wait for each other
// until the deadline, and the contents of tensors are then undefined. A mean is NCCL's: each rank's values times 1 /
// size, added up, which is the sum's bits divided where the size is a power of two, and needs no further pass over the
// data where it is not. Collectives may be recorded (nn::Accelerator::record()), but for barrier(), which
// waits. The communicators share one watch: what goes wrong with one rank ends all of them.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/parallel/collectives/nccl/device_communicator.h"
#include "trainyard/parallel/collectives/nccl/nccl_library.h"
#include "trainyard/parallel/collectives/nccl/nccl_watch.h"

namespace trainyard::parallel {

struct NcclGroup {
  std::string id;                                                // NcclLibrary::unique_id(), the same on all ranks
  int size = 1;                                                  // of all processes
  int first_rank = 0;                                            // of the devices here
  std::vector<at::Device> devices;                               // one a rank
  std::chrono::milliseconds deadline{std::chrono::minutes(10)};  // for joining, and to begin with
  NcclWatch::PeerFailure peer_failure;                           // none: there are no other processes
};

// Returns one communicator for each device, in their order. Collective over all processes. Throws kInvalidArgument when
// two ranks have the same GPU, which NCCL does not do; kTimeout when a rank does not come; kPeerFailed with what NCCL
// says.
std::vector<std::unique_ptr<core::Communicator>> make_nccl_communicators(const std::shared_ptr<NcclLibrary>& library,
                                                                         const NcclGroup& group);

}  // namespace trainyard::parallel
