#include "trainyard/core/cuda/check_cuda.h"

#include <string>

#include "trainyard/core/base/error.h"

namespace trainyard::core::cuda {

void check_cuda(cudaError_t result, const char* operation) {
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::kInternal,
              {.problem = "a CUDA call failed",
               .where = operation,
               .actual = std::string(cudaGetErrorName(result)) + ": " + cudaGetErrorString(result)});
}

}  // namespace trainyard::core::cuda
