// Stands in for cuDNN, as far as LibTorch goes for convolutions: its graph interface finds one engine for everything,
// and a plan's execution is a launch without effect. Numbers are those of cudnn_graph.h 9. Functions are declared with
// as many of their arguments as are looked at; those of the old interface that are not here end the process by name.
#include <cstdint>
#include <vector>

#include "tests/pretended_cuda/pretended_cuda.h"
#include <cuda_runtime_api.h>

namespace {

constexpr int kSuccess = 0, kNotInitialized = 1001, kExecutionFailed = 5000;
constexpr int kVersion = 91900;
constexpr int64_t kWorkspaceBytes = 1 << 20;
constexpr size_t kHandleBytes = 1 << 16;

enum Attribute {
  kEngineHeuristicsResults = 202,
  kConfigurationEngine = 300,
  kConfigurationWorkspace = 303,
  kPlanWorkspace = 402,
  kEngineIndex = 1301,
};

struct Handle {
  void* memory = nullptr;  // as the real one, which cannot be made in a capture
  cudaStream_t stream = nullptr;
};
struct Descriptor {
  int kind = 0;
};

}  // namespace

extern "C" {

size_t cudnnGetVersion() {
  return kVersion;
}
size_t cudnnGetCudartVersion() {
  return CUDART_VERSION;
}
const char* cudnnGetErrorString(int status) {
  return status == kSuccess ? "CUDNN_STATUS_SUCCESS" : "an error of the pretended cuDNN";
}
void cudnnGetLastErrorString(char* message, size_t bytes) {
  if (bytes > 0) *message = 0;
}
int cudnnCreate(Handle** handle) {
  auto made = new Handle;
  if (cudaMalloc(&made->memory, kHandleBytes) != cudaSuccess) {
    delete made;
    return kNotInitialized;
  }
  *handle = made;
  return kSuccess;
}
int cudnnSetStream(Handle* handle, cudaStream_t stream) {
  handle->stream = stream;
  return kSuccess;
}
int cudnnGetStream(const Handle* handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return kSuccess;
}

int cudnnBackendCreateDescriptor(int kind, Descriptor** made) {
  *made = new Descriptor{kind};
  return kSuccess;
}
int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return kSuccess;
}
int cudnnBackendSetAttribute() {
  return kSuccess;
}
int cudnnBackendFinalize() {
  return kSuccess;
}
// What there is one of: a configuration, its engine, their numbers. All else, notes and knobs: none.
int cudnnBackendGetAttribute(const Descriptor*, int attribute, int, int64_t, int64_t* count, void* elements) {
  int64_t number = -1;
  switch (attribute) {
    case kEngineHeuristicsResults:
    case kConfigurationEngine:
      if (count != nullptr) *count = 1;  // the caller's descriptor is filled
      return kSuccess;
    case kConfigurationWorkspace:
    case kPlanWorkspace:
      number = kWorkspaceBytes;
      break;
    case kEngineIndex:
      number = 0;
      break;
    default:
      break;
  }
  if (count != nullptr) *count = number >= 0 ? 1 : 0;
  if (number >= 0 && elements != nullptr) *static_cast<int64_t*>(elements) = number;
  return kSuccess;
}
int cudnnBackendExecute(const Handle* handle) {
  return pretended_cuda_launch("cudnnBackendExecute", handle->stream) == cudaSuccess ? kSuccess : kExecutionFailed;
}
}
