// Stands in for CUDA's header where kernels are run on the CPU (tests/cuda_emulation/emulated_grid.h).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/cuda_emulation/emulated_grid.h"

#define __global__ static
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(threads)

using std::isfinite;
using std::isnan;

template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}

struct double2 {
  double x, y;
};

using cudaStream_t = void*;
using cudaError_t = int;
constexpr cudaError_t cudaSuccess = 0;
constexpr int cudaDevAttrMultiProcessorCount = 0;

inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
// Few, so that threads get many rows.
inline cudaError_t cudaDeviceGetAttribute(int* value, int /*attribute*/, int /*device*/) {
  *value = 2;
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t count, cudaStream_t) {
  std::memset(to, value, count);
  return cudaSuccess;
}
inline const char* cudaGetErrorName(cudaError_t) {
  return "cudaErrorUnknown";
}
inline const char* cudaGetErrorString(cudaError_t) {
  return "unknown error";
}
