// What tests ask the pretended CUDA runtime (docs/design/cuda.md). Weak: null where the program runs with the real one.
#pragma once

#include <cstdint>

#include <driver_types.h>

extern "C" {

// How often a call of the runtime was made, or "launch of <mangled kernel>", "mistakes", ...; 0: never, or not counted.
__attribute__((weak)) int64_t pretended_cuda_count(const char* name);
// Of kernels whose mangled name holds `part`.
__attribute__((weak)) int64_t pretended_cuda_launches(const char* part);
// The counts as JSON, into a file.
__attribute__((weak)) bool pretended_cuda_write_counts(const char* path);

// A launch as cuBLAS and cuDNN make them.
__attribute__((weak)) cudaError_t pretended_cuda_launch(const char* name, cudaStream_t stream);
}
