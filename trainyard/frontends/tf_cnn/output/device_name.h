// The names of devices in tf_cnn_benchmarks' output.
#pragma once

#include <string>

#include "trainyard/train/devices/open_devices.h"

namespace trainyard::frontends {

// Returns "/cpu:0" or "/gpu:1".
std::string device_name(const train::OpenDevices& devices, int replica);

}  // namespace trainyard::frontends
