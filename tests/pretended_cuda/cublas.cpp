// Stands in for cuBLAS, which brings a CUDA runtime of its own and asks a driver: products are launches without effect.
// Functions are declared with as many of their arguments as are looked at.
#include "tests/pretended_cuda/pretended_cuda.h"
#include <cuda_runtime_api.h>

namespace {

constexpr int kSuccess = 0, kNotInitialized = 1, kExecutionFailed = 13;
constexpr size_t kHandleBytes = 1 << 16;

struct Handle {
  void* memory = nullptr;  // as the real one, which cannot be made in a capture
  cudaStream_t stream = nullptr;
  int math_mode = 0, pointer_mode = 0;
};

int launch(const Handle* handle, const char* name) {
  if (handle == nullptr) return kNotInitialized;
  return pretended_cuda_launch(name, handle->stream) == cudaSuccess ? kSuccess : kExecutionFailed;
}

}  // namespace

extern "C" {

int cublasCreate_v2(Handle** handle) {
  auto made = new Handle;
  if (cudaMalloc(&made->memory, kHandleBytes) != cudaSuccess) {
    delete made;
    return kNotInitialized;
  }
  *handle = made;
  return kSuccess;
}
int cublasDestroy_v2(Handle* handle) {
  cudaFree(handle->memory);
  delete handle;
  return kSuccess;
}
int cublasSetStream_v2(Handle* handle, cudaStream_t stream) {
  handle->stream = stream;
  return kSuccess;
}
int cublasSetWorkspace_v2(Handle*, void*, size_t) {
  return kSuccess;
}
int cublasSetMathMode(Handle* handle, int mode) {
  handle->math_mode = mode;
  return kSuccess;
}
int cublasGetMathMode(const Handle* handle, int* mode) {
  *mode = handle->math_mode;
  return kSuccess;
}
int cublasSetPointerMode_v2(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return kSuccess;
}
int cublasGetPointerMode_v2(const Handle* handle, int* mode) {
  *mode = handle->pointer_mode;
  return kSuccess;
}

int cublasSgemm_v2(Handle* handle) {
  return launch(handle, "cublasSgemm");
}
int cublasSgemmEx(Handle* handle) {
  return launch(handle, "cublasSgemmEx");
}
int cublasGemmEx(Handle* handle) {
  return launch(handle, "cublasGemmEx");
}
int cublasSgemv_v2(Handle* handle) {
  return launch(handle, "cublasSgemv");
}
int cublasSdot_v2(Handle* handle) {
  return launch(handle, "cublasSdot");
}
int cublasDotEx(Handle* handle) {
  return launch(handle, "cublasDotEx");
}
int cublasSgemmStridedBatched(Handle* handle) {
  return launch(handle, "cublasSgemmStridedBatched");
}
int cublasGemmStridedBatchedEx(Handle* handle) {
  return launch(handle, "cublasGemmStridedBatchedEx");
}
}
