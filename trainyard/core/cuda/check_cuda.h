// Turns the error code of a CUDA call into an exception.
#pragma once

#include <cuda_runtime_api.h>

namespace trainyard::core::cuda {

// Throws kInternal with `operation` as the place when `result` is not cudaSuccess. After a launch, pass
// cudaGetLastError(). May be called from any thread.
void check_cuda(cudaError_t result, const char* operation);

}  // namespace trainyard::core::cuda
