// Reads the flags of devices, precision, kernels and processes.
#pragma once

#include "trainyard/core/flags/flags.h"
#include "trainyard/frontends/options/device_settings.h"

namespace trainyard::frontends {

// Reads the flags that nn::declare_flags and parallel::declare_flags declare, the fp16 flags of optim, and core's
// log_level, max_cpu_isa and memory. Throws kInvalidArgument for a --gpu_indices that is not a list of GPUs.
DeviceOptions read_device_options(const core::FlagValues& values);

}  // namespace trainyard::frontends
