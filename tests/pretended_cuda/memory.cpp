// Device memory is host memory within a budget, fresh blocks are zero; copies and fills are done for real.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/pretended_cuda/device.h"
#include <sys/mman.h>

namespace trainyard::pretended_cuda {

bool Device::within(const std::map<const char*, size_t>& blocks, const void* pointer, size_t bytes) {
  const char* const first = static_cast<const char*>(pointer);
  auto after = blocks.upper_bound(first);
  if (after == blocks.begin()) return false;
  --after;
  return first + bytes <= after->first + after->second;
}

cudaError_t Device::allocate(void** pointer, size_t bytes, bool managed) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (!managed && bytes > static_cast<size_t>(free_bytes())) return cudaErrorMemoryAllocation;
  // Costs nothing until it is written.
  void* const block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) return cudaErrorMemoryAllocation;
  blocks_[static_cast<const char*>(block)] = bytes;
  if (managed) managed_.insert(static_cast<const char*>(block));
  if (!managed) used_ += static_cast<int64_t>(bytes);
  *pointer = block;
  return cudaSuccess;
}

cudaError_t Device::release(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const auto found = blocks_.find(static_cast<const char*>(pointer));
  if (found == blocks_.end()) {
    mistake("cudaFree of what is not, or no longer, allocated");
    return cudaErrorInvalidValue;
  }
  finish_all();  // as cudaFree does
  munmap(pointer, found->second);
  if (managed_.erase(found->first) == 0) used_ -= static_cast<int64_t>(found->second);
  blocks_.erase(found);
  return cudaSuccess;
}

namespace {

// Where the environment asks for it, numbers that the host reads one by one are zero: no kernel has computed them.
void copy(void* target, const void* source, size_t bytes, bool to_host) {
  static const bool zero_scalars = setting("PRETENDED_CUDA_ZERO_SCALARS", 0) != 0;
  if (to_host && zero_scalars && bytes <= 8) {
    std::memset(target, 0, bytes);
  } else {
    std::memcpy(target, source, bytes);
  }
}

// Copies as `stream` comes to it. Pageable memory is copied before the call ends, and waits for the stream.
cudaError_t copy_in_order(Device& device, void* target, const void* source, size_t bytes, Stream& stream) {
  if (bytes == 0) return cudaSuccess;
  const bool to_device = device.on_device(target, bytes), from_device = device.on_device(source, bytes);
  if (to_device && from_device) {
    return device.hand_over(stream, device.watched(stream, {.run = [=] { std::memmove(target, source, bytes); }},
                                                   {.kind = Work::Kind::kCopy, .bytes = bytes}));
  }
  const void* const host = to_device ? source : target;
  const bool pinned = device.pinned(host, bytes);
  if (pinned) device.count("pinned copies");
  if (!pinned) {
    device.count("pageable copies");
    if (stream.capture != nullptr) {
      stream.capture->broken = true;
      return cudaErrorStreamCaptureUnsupported;
    }
  }
  const Work work{
      .kind = Work::Kind::kCopy, .bytes = bytes, .from_host = to_device, .to_host = from_device, .pinned = pinned};
  const cudaError_t error = device.hand_over(
      stream, device.watched(stream, {.run = [=] { copy(target, source, bytes, from_device); }}, work));
  if (!pinned && error == cudaSuccess) device.finish(stream);
  return error;
}

}  // namespace
}  // namespace trainyard::pretended_cuda

using trainyard::pretended_cuda::Device;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.count("cudaMalloc");
  if (const cudaError_t error = device.unsafe_call()) return Device::result(error);
  return Device::result(device.allocate(pointer, bytes, /*managed=*/false));
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned int) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.count("cudaMallocManaged");
  if (const cudaError_t error = device.unsafe_call()) return Device::result(error);
  return Device::result(device.allocate(pointer, bytes, /*managed=*/true));
}
cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise, cudaMemLocation) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  return Device::result(device.on_device(pointer, bytes) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaFree(void* pointer) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  if (pointer != nullptr) device.count("cudaFree");
  if (const cudaError_t error = device.unsafe_call()) return Device::result(error);
  return Device::result(device.release(pointer));
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  *free = static_cast<size_t>(device.free_bytes());
  *total = static_cast<size_t>(device.total());
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.count("cudaHostAlloc");
  if (const cudaError_t error = device.unsafe_call()) return Device::result(error);
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  device.pinned_blocks()[static_cast<const char*>(*pointer)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}
cudaError_t cudaFreeHost(void* pointer) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  if (pointer == nullptr) return cudaSuccess;
  device.count("cudaFreeHost");
  if (const cudaError_t error = device.unsafe_call()) return Device::result(error);
  if (device.pinned_blocks().erase(static_cast<const char*>(pointer)) == 0) {
    device.mistake("cudaFreeHost of what is not, or no longer, allocated");
    return Device::result(cudaErrorInvalidValue);
  }
  device.finish_all();
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  if (const cudaError_t error = device.unsafe_call()) return Device::result(error);
  if (device.pinned(pointer, 1)) return Device::result(cudaErrorHostMemoryAlreadyRegistered);
  device.pinned_blocks()[static_cast<const char*>(pointer)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.finish_all();
  const bool known = device.pinned_blocks().erase(static_cast<const char*>(pointer)) == 1;
  return Device::result(known ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  if (device.on_device(pointer, 1)) attributes->type = cudaMemoryTypeDevice;
  if (device.pinned(pointer, 1)) attributes->type = cudaMemoryTypeHost;
  if (attributes->type == cudaMemoryTypeDevice) attributes->devicePointer = const_cast<void*>(pointer);
  if (attributes->type == cudaMemoryTypeHost) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  const bool target_wanted = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool source_wanted = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool as_said = kind == cudaMemcpyDefault || (device.on_device(target, bytes) == target_wanted &&
                                                     device.on_device(source, bytes) == source_wanted);
  if (!as_said && bytes > 0) {
    device.mistake("a copy whose memory lies elsewhere than its direction says");
    return Device::result(cudaErrorInvalidValue);
  }
  return Device::result(trainyard::pretended_cuda::copy_in_order(device, target, source, bytes, *stream));
}
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  device.count("cudaMemcpy");
  if (const cudaError_t error = device.unsafe_call()) return Device::result(error);
  if (const cudaError_t error = cudaMemcpyAsync(target, source, bytes, kind, nullptr)) return error;
  device.finish(*device.stream(nullptr));
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t handle) {
  Device& device = Device::instance();
  const auto lock = device.lock();
  const auto stream = device.stream(handle);
  if (stream == nullptr) return Device::result(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (!device.on_device(pointer, bytes)) {
    device.mistake("a fill of memory that is not the device's");
    return Device::result(cudaErrorInvalidValue);
  }
  return Device::result(device.hand_over(
      *stream, device.watched(*stream, {.run = [=] { std::memset(pointer, value, bytes); }},
                              {.kind = trainyard::pretended_cuda::Work::Kind::kFill, .bytes = bytes})));
}
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  const cudaError_t error = Device::instance().unsafe_call();
  return error != cudaSuccess ? Device::result(error) : cudaMemsetAsync(pointer, value, bytes, nullptr);
}
}
