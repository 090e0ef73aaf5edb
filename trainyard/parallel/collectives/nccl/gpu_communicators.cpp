#include "trainyard/parallel/collectives/nccl/gpu_communicators.h"

#include "trainyard/core/base/log.h"
#include "trainyard/parallel/collectives/nccl/nccl_communicator.h"
#include "trainyard/parallel/collectives/nccl/nccl_processes.h"

namespace trainyard::parallel {

std::vector<std::unique_ptr<core::Communicator>> make_gpu_communicators(
    const std::vector<c10::Device>& devices, const std::shared_ptr<ProcessGroup>& processes) {
  const std::shared_ptr<NcclLibrary> library = open_nccl();
  core::log::info("gradients meet by NCCL {}", library->version());
  if (processes != nullptr) {
    std::vector<std::unique_ptr<core::Communicator>> communicators;
    communicators.push_back(join_nccl_processes(library, processes, devices.at(0), NcclGroup().deadline));
    return communicators;
  }
  const NcclGroup group{.id = library->unique_id(), .size = static_cast<int>(devices.size()), .devices = devices};
  return make_nccl_communicators(library, group);
}

}  // namespace trainyard::parallel
