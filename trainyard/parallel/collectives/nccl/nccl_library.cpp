#include "trainyard/parallel/collectives/nccl/nccl_library.h"

#include "trainyard/core/base/build_info.h"
#include "trainyard/core/base/error.h"

namespace trainyard::parallel {

NcclLibraryRegistry& nccl_libraries() {
  static auto* registry = new NcclLibraryRegistry("collectives library");
  return *registry;
}

std::shared_ptr<NcclLibrary> open_nccl() {
  constexpr const char* kName = "nccl";
  if (!nccl_libraries().has(kName)) {
    std::string how;
    for (const core::OptionalPart& part : core::build_info().optional_parts) {
      if (part.name == "NCCL") how = part.how_to_get;
    }
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "this build cannot train on several GPUs: NCCL is not built in",
                       .remedy = "it needs " + how + "; or use one GPU"});
  }
  return nccl_libraries().get(kName)();
}

}  // namespace trainyard::parallel
