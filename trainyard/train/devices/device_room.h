// Turns lack of memory on an accelerator into an error that says what was requested, held and free, and what would fit.
#pragma once

#include <cstdint>
#include <functional>

#include "trainyard/nn/execution/accelerator.h"

namespace trainyard::train {

// The memory that work on one batch needs, for the estimate of the batch that fits (nn/execution/device_memory.h).
// Without a batch it is other work, such as making a model.
struct DeviceNeeds {
  int64_t batch = 0;  // images; 0: none
  int64_t fixed_bytes = 0, bytes_per_image = 0;
};

// Calls `work`. Throws what it throws, and kNoSpace when LibTorch reports that the accelerator's memory is not enough.
void run_or_explain(nn::Accelerator& accelerator, const DeviceNeeds& needs, const std::function<void()>& work);

}  // namespace trainyard::train
