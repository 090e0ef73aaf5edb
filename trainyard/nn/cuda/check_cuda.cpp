#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {

void check_cuda(cudaError_t result, const char* operation) {
  if (result == cudaSuccess) return;
  throw core::Error(core::ErrorCode::kInternal,
                    {.problem = "a CUDA call failed",
                     .where = operation,
                     .actual = std::string(cudaGetErrorName(result)) + ": " + cudaGetErrorString(result)});
}

}  // namespace trainyard::nn::cuda
