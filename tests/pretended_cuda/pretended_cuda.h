// What tests ask the pretended CUDA runtime (docs/design/cuda.md). Weak: null where the program runs with the real one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include <driver_types.h>

namespace trainyard::pretended_cuda {

// Work that is handed over, as the pretended CUPTI sees it.
struct Work {
  enum class Kind { kKernel, kCopy, kFill };
  Kind kind = Kind::kKernel;
  const char* name = "";  // of a kernel
  size_t bytes = 0;
  bool from_host = false, to_host = false, pinned = false;  // of a copy
  uint32_t stream = 0;
};
// Called as work is handed over; the result is called when it is done.
using Watch = std::function<void()> (*)(const Work&);

}  // namespace trainyard::pretended_cuda

extern "C" {

// Null: nobody watches.
__attribute__((weak)) void pretended_cuda_watch(trainyard::pretended_cuda::Watch watch);

// How often a call of the runtime was made, or "launch of <mangled kernel>", "mistakes", ...; 0: never, or not counted.
__attribute__((weak)) int64_t pretended_cuda_count(const char* name);
// Returns the number of kernels whose mangled name contains `part`.
__attribute__((weak)) int64_t pretended_cuda_launches(const char* part);
// The counts as JSON, into a file.
__attribute__((weak)) bool pretended_cuda_write_counts(const char* path);

// For libraries beside the runtime: a call to count, one that was wrong, and a launch.
__attribute__((weak)) void pretended_cuda_count_call(const char* name);
__attribute__((weak)) void pretended_cuda_mistake(const char* what);
__attribute__((weak)) cudaError_t pretended_cuda_launch(const char* name, cudaStream_t stream);
}
