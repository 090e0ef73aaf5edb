// Tracers of a GPU: with CUPTI, kernel by kernel, or with events on its stream, span by span.
#pragma once

#include <memory>

#include <c10/cuda/CUDAStream.h>

#include "trainyard/nn/execution/device_trace.h"

namespace trainyard::nn::cuda {

// Traces all of this process's GPUs. Throws kUnsupported, with CUPTI's reason, when it cannot be used: another profiler
// is active, or the driver denies it to this user.
std::unique_ptr<DeviceTracer> open_cupti_tracer();

// Traces the work of `stream`, without kernels. The time in which the GPU waited inside a span counts as the span's.
std::unique_ptr<DeviceTracer> open_event_tracer(const c10::cuda::CUDAStream& stream);

}  // namespace trainyard::nn::cuda
