// Runs CUDA kernels on the CPU, thread by thread: what they compute is tested without a GPU, how fast and on which
// hardware is not. The threads of a block take turns from barrier to barrier; blocks run one after the other. Every
// second launch goes through blocks and threads backwards, so that what depends on their order does not stay the same.
#pragma once

#include <cstddef>
#include <functional>

struct dim3 {
  dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1) : x(x_size), y(y_size), z(z_size) {}
  unsigned x, y, z;
};

// The current thread's indices.
extern dim3 gridDim, blockDim, blockIdx, threadIdx;
void __syncthreads();

namespace cuda_emulation {

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes = 0;
  void* stream = nullptr;
};
// Throws std::invalid_argument for shapes that CUDA refuses.
void launch(const LaunchShape& shape, const std::function<void()>& thread);
// The current block's shared memory: `shared_bytes`, which held NaN when it began.
void* dynamic_shared();

}  // namespace cuda_emulation
