#include "trainyard/optim/step/device_kernels.h"

#include <string>

#include "trainyard/core/base/error.h"

namespace trainyard::optim {

core::Registry<std::shared_ptr<const DeviceKernels>>& all_device_kernels() {
  static auto* registry = new core::Registry<std::shared_ptr<const DeviceKernels>>("optimizer kernels");
  return *registry;
}

const DeviceKernels* device_kernels(at::Device device) {
  if (device.is_cpu()) return nullptr;
  const std::string kind = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  if (all_device_kernels().has(kind)) return all_device_kernels().get(kind).get();
  throw core::Error(core::ErrorCode::kUnsupported, {.problem = "optimizers do not work there", .actual = device.str()});
}

}  // namespace trainyard::optim
