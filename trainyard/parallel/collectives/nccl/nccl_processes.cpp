#include "trainyard/parallel/collectives/nccl/nccl_processes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace trainyard::parallel {

std::unique_ptr<core::Communicator> join_nccl_processes(const std::shared_ptr<NcclLibrary>& library,
                                                        const std::shared_ptr<ProcessGroup>& processes,
                                                        at::Device device, std::chrono::milliseconds deadline) {
  const std::vector<std::string> gpus = processes->gather("GPUs", library->identity(device));
  // All see the same list, and so all find the same two.
  for (size_t r = 0; r < gpus.size(); ++r) {
    const auto other = static_cast<size_t>(std::find(gpus.begin(), gpus.end(), gpus[r]) - gpus.begin());
    if (other == r) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "two ranks have the same GPU, which NCCL does not do",
                       .where = fmt::format("ranks {} and {}", other, r),
                       .expected = "a GPU for each process",
                       .actual = gpus[r],
                       .remedy = "set LOCAL_RANK to 0, 1, ... on each machine, or --gpu_indices; or start fewer "
                                 "processes"});
  }
  const std::string id = processes->from_first("NCCL's id", processes->rank() == 0 ? library->unique_id() : "");
  auto communicators =
      make_nccl_communicators(library, {.id = id,
                                        .size = processes->size(),
                                        .first_rank = processes->rank(),
                                        .devices = {device},
                                        .deadline = deadline,
                                        .peer_failure = [processes] { return processes->reported(); }});
  return std::move(communicators[0]);
}

}  // namespace trainyard::parallel
