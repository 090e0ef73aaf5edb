// Devices by their names, as programs give them: "cpu:0", "cpu:1" or "gpu:0", also as TensorFlow writes them ("/gpu:0",
// "/device:GPU:0"). On the CPU each is a replica on a thread of its own, whatever its number.
#pragma once

#include <string>
#include <vector>

#include "trainyard/train/devices/open_devices.h"

namespace trainyard::frontends {

struct NamedDevices {
  int replicas = 1;
  train::DeviceRequest request{};  // without GPUs: the CPU
};

// Throws kInvalidArgument for no name, one that is not as above, one that is given twice, and for CPUs beside GPUs.
NamedDevices read_device_names(const std::vector<std::string>& names);

}  // namespace trainyard::frontends
