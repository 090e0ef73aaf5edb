// One value of each thread of a block, combined in a tree: its order does not depend on timing.
#pragma once

#include <cuda_runtime_api.h>

namespace trainyard::core::cuda {

// Returns operation(...operation(value, value)...) over the block's kThreads threads, a power of two, the same to all
// of them. All of them call it.
template <int kThreads, typename T, typename Operation>
__device__ inline T reduce_block(T value, const Operation& operation) {
  static_assert(kThreads > 0 && (kThreads & (kThreads - 1)) == 0);
  __shared__ T shared[kThreads];
  __syncthreads();  // a reduction before this one may still be read
  shared[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      shared[threadIdx.x] = operation(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
  }
  __syncthreads();
  return shared[0];
}

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

}  // namespace trainyard::core::cuda
