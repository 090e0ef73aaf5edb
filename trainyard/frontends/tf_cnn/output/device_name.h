// The names of devices in what tf_cnn_benchmarks prints and writes.
#pragma once

#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/train/devices/run_devices.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

// Returns "/cpu:0" or "/gpu:1".
std::string device_name(const train::RunDevices& devices, int replica);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
