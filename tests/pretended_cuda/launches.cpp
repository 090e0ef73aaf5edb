// Kernels are not run: a launch is checked, counted by its kernel's name and leaves memory as it is.
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/pretended_cuda/device.h"
#include "tests/pretended_cuda/pretended_cuda.h"

namespace trainyard::pretended_cuda {
namespace {

constexpr size_t kStaticShared = 48 << 10, kLargestShared = 227 << 10;  // bytes a block, sm_90

struct Kernel {
  std::string name;
  size_t dynamic_shared = kStaticShared;  // what it may ask for
};
std::unordered_map<const void*, Kernel>& kernels() {
  static auto* all = new std::unordered_map<const void*, Kernel>;
  return *all;
}

struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> configurations;

bool possible(const Configuration& launch, const Kernel& kernel) {
  const dim3 &grid = launch.grid, &block = launch.block;
  const bool grid_fits =
      grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 2147483647U && grid.y <= 65535U && grid.z <= 65535U;
  const bool block_fits = block.x > 0 && block.y > 0 && block.z > 0 && block.x <= 1024 && block.y <= 1024 &&
                          block.z <= 64 && size_t{block.x} * block.y * block.z <= 1024;
  return grid_fits && block_fits && launch.shared <= kernel.dynamic_shared;
}

cudaError_t launch(const void* kernel_key, const Configuration& launch) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto kernel = kernels().find(kernel_key);
  if (kernel == kernels().end()) return cudaErrorInvalidDeviceFunction;
  if (!possible(launch, kernel->second)) {
    device.mistake("a launch that is not possible: " + kernel->second.name);
    return cudaErrorInvalidConfiguration;
  }
  return pretended_cuda_launch(kernel->second.name.c_str(), launch.stream);
}

}  // namespace

Operation Device::watched(const Stream& stream, Operation operation, Work work) const {
  if (watch_ == nullptr || stream.capture != nullptr) return operation;
  work.stream = stream.number;
  operation.run = [run = std::move(operation.run), done = watch_(work)] {
    if (run) run();
    done();
  };
  return operation;
}

}  // namespace trainyard::pretended_cuda

using trainyard::pretended_cuda::Configuration;
using trainyard::pretended_cuda::Device;
using trainyard::pretended_cuda::kernels;

extern "C" {

void pretended_cuda_watch(trainyard::pretended_cuda::Watch watch) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.watch_by(watch);
}

cudaError_t pretended_cuda_launch(const char* name, cudaStream_t handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  device.count("launches");
  device.count(std::string("launch of ") + name);
  if (stream->legacy) device.count("launches on the default stream");
  if (stream->capture == nullptr && !device.captures().empty()) device.count("launches beside a capture");
  return Device::result(device.hand_over(*stream, device.watched(*stream, {}, {.name = name})));
}

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  const auto lock = Device::instance().lock();
  kernels()[function] = {.name = name};
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  trainyard::pretended_cuda::configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  auto& waiting = trainyard::pretended_cuda::configurations;
  if (waiting.empty()) return Device::result(cudaErrorMissingConfiguration);
  *grid = waiting.back().grid;
  *block = waiting.back().block;
  *shared = waiting.back().shared;
  *static_cast<cudaStream_t*>(stream) = waiting.back().stream;
  waiting.pop_back();
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t shared, cudaStream_t stream) {
  return Device::result(trainyard::pretended_cuda::launch(function, {grid, block, shared, stream}));
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return cudaLaunchKernel(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                          config->stream);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const auto lock = Device::instance().lock();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  const auto bytes = static_cast<size_t>(value);
  if (bytes > trainyard::pretended_cuda::kLargestShared) return Device::result(cudaErrorInvalidValue);
  kernels()[function].dynamic_shared = bytes;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 64;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  attributes->maxDynamicSharedSizeBytes = trainyard::pretended_cuda::kStaticShared;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, size_t,
                                                                   unsigned int) {
  *blocks = threads > 0 ? 2048 / threads : 0;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}
}
