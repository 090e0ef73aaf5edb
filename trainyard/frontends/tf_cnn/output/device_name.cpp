#include "trainyard/frontends/tf_cnn/output/device_name.h"

#include <fmt/format.h>

#include "trainyard/nn/execution/accelerator.h"

namespace trainyard::frontends {

std::string device_name(const train::OpenDevices& devices, int replica) {
  if (devices.accelerators.empty()) return fmt::format("/cpu:{}", replica);
  return fmt::format("/gpu:{}", static_cast<int>(devices.accelerators[static_cast<size_t>(replica)]->device().index()));
}

}  // namespace trainyard::frontends
