// The names of devices in what tf_cnn_benchmarks prints and writes.
#pragma once

#include <string>

#include "trainyard/train/devices/open_devices.h"

namespace trainyard::frontends {

// Returns "/cpu:0" or "/gpu:1".
std::string device_name(const train::OpenDevices& devices, int replica);

}  // namespace trainyard::frontends
