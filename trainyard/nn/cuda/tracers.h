// What a GPU has run: by CUPTI kernel for kernel, or by events on its stream span for span.
#pragma once

#include <memory>

#include <c10/cuda/CUDAStream.h>

#include "trainyard/nn/execution/device_trace.h"

namespace trainyard::nn::cuda {

// Of all of this process's GPUs. Throws kUnsupported, with CUPTI's reason, where it cannot be used: another profiler is
// at work, or the driver does not let this user.
std::unique_ptr<DeviceTracer> open_cupti_tracer();

// Of what is handed to `stream`: no kernels, and the time in which the GPU waited inside a span counts as the span's.
std::unique_ptr<DeviceTracer> open_event_tracer(const c10::cuda::CUDAStream& stream);

}  // namespace trainyard::nn::cuda
