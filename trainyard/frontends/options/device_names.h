// Devices by their names, as programs give them: "cpu:0", "cpu:1" or "gpu:0", also as TensorFlow writes them ("/gpu:0",
// "/device:GPU:0"). On the CPU each is a replica on a thread of its own, whatever its number.
#pragma once

#include <string>
#include <vector>

#include "trainyard/frontends/options/device_settings.h"
#include "trainyard/train/devices/open_devices.h"

namespace trainyard::frontends {

// Throws kInvalidArgument for an empty list, an invalid or duplicate name, and for a mix of CPUs and GPUs.
DeviceOptions read_device_names(const std::vector<std::string>& names);
// Opens what read_device_names() has returned, for this process alone. Throws as train::open_devices() does.
train::OpenDevices open_named_devices(const DeviceOptions& named);
// Collective: opens them in each of the processes that a launcher has started, which then train together; where there
// is one, for this process alone. Throws as open_device() does.
train::OpenDevices open_named_devices_together(DeviceOptions named);
// Returns how the replicas of such devices exchange gradients, so that all of them give what those of one process give:
// a name of parallel::variable_updates(). `alone` is how they do in one process.
[[nodiscard]] std::string variable_update_of(const train::OpenDevices& opened, const std::string& alone);

}  // namespace trainyard::frontends
