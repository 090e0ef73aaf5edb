// Collectives between GPUs with NCCL. Ranks are replicas of this process, each used by its replica's thread, or there
// is one rank per process. Work goes to the calling thread's current stream (nn::Accelerator::use()).
//
//   const auto library = parallel::open_nccl();
//   auto communicators = parallel::make_nccl_communicators(
//       library, {.id = library->unique_id(), .size = 2, .devices = {gpu_0->device(), gpu_1->device()}});
//
// Follows core::Communicator, except that calls are not compared: ranks that call different collectives wait for each
// other until the deadline, and the contents of tensors are then undefined. A mean is NCCL's: the sum of each rank's
// values times 1 / size, which equals the divided sum bit for bit when the size is a power of two, and needs no further
// pass over the data. Collectives may be recorded (nn::Accelerator::record()), except for barrier(), which waits. The
// communicators share one watch: an error of one rank ends all of them.
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
  int size = 1;                                                  // number of ranks of all processes
  int first_rank = 0;                                            // rank of the first device here
  std::vector<at::Device> devices;                               // one per rank
  std::chrono::milliseconds deadline{std::chrono::minutes(10)};  // of joining, and the initial deadline of calls
  NcclWatch::PeerFailure peer_failure;                           // empty: there are no other processes
};

// Returns one communicator for each device, in their order. Collective over all processes. Throws kInvalidArgument when
// two ranks have the same GPU, which NCCL does not do; kTimeout when a rank does not come; kPeerFailed with what NCCL
// says.
std::vector<std::unique_ptr<core::Communicator>> make_nccl_communicators(const std::shared_ptr<NcclLibrary>& library,
                                                                         const NcclGroup& group);

}  // namespace trainyard::parallel
