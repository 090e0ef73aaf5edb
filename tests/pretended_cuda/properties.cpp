// The device as it describes itself, errors, and what the environment sets:
//   PRETENDED_CUDA_MEMORY_MIB=2048     the device's memory
//   PRETENDED_CUDA_ZERO_SCALARS=1      what the host reads in 8 bytes or less is zero
//   PRETENDED_CUDA_COUNTS=<file>       where the counts go when the process ends
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/pretended_cuda/device.h"
#include "tests/pretended_cuda/pretended_cuda.h"

namespace trainyard::pretended_cuda {

int64_t setting(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

Device::Device() : total_(setting("PRETENDED_CUDA_MEMORY_MIB", 2048) << 20), legacy_(std::make_shared<Stream>()) {
  legacy_->legacy = true;
  static const char* const path = std::getenv("PRETENDED_CUDA_COUNTS");
  if (path != nullptr) std::atexit([] { pretended_cuda_write_counts(path); });
}

// Never destroyed: kernels are registered before, and streams used after, whatever is static.
Device& Device::instance() {
  static auto* device = new Device;
  return *device;
}

cudaError_t& Device::last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t Device::result(cudaError_t error) {
  if (error != cudaSuccess) last_error() = error;
  return error;
}

void Device::mistake(const std::string& what) {
  count("mistakes");
  std::fprintf(stderr, "pretended CUDA: %s\n", what.c_str());
}

}  // namespace trainyard::pretended_cuda

using trainyard::pretended_cuda::Device;

extern "C" {

int64_t pretended_cuda_count(const char* name) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto found = device.counts().find(name);
  return found == device.counts().end() ? 0 : found->second;
}
void pretended_cuda_count_call(const char* name) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.count(name);
}
void pretended_cuda_mistake(const char* what) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.mistake(what);
}
int64_t pretended_cuda_launches(const char* part) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  int64_t sum = 0;
  for (const auto& [name, count] : device.counts()) {
    if (name.starts_with("launch of ") && name.find(part) != std::string::npos) sum += count;
  }
  return sum;
}
bool pretended_cuda_write_counts(const char* path) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return false;
  const char* separator = "{\n";
  for (const auto& [name, count] : device.counts()) {  // names are identifiers and plain words
    std::fprintf(file, "%s  \"%s\": %lld", separator, name.c_str(), static_cast<long long>(count));
    separator = ",\n";
  }
  std::fprintf(file, device.counts().empty() ? "{}\n" : "\n}\n");
  return std::fclose(file) == 0;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = Device::last_error();
  Device::last_error() = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  return Device::last_error();
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    default:
      return "another error";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing"
                                                    : cudaGetErrorName(error);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : Device::result(cudaErrorInvalidDevice);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "Pretended GPU");
  properties->major = 9;
  properties->totalGlobalMem = static_cast<size_t>(Device::instance().total());
  properties->multiProcessorCount = 132;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->l2CacheSize = 50 << 20;
  properties->memoryBusWidth = 5120;
  for (const int i : {0, 1, 2}) {
    properties->maxThreadsDim[i] = i == 2 ? 64 : 1024;
    properties->maxGridSize[i] = i == 0 ? 2147483647 : 65535;
  }
  properties->textureAlignment = 512;
  properties->unifiedAddressing = properties->concurrentKernels = properties->canMapHostMemory = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
      *value = 1;
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int) {
  std::snprintf(text, static_cast<size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
// The driver is not there.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
}
