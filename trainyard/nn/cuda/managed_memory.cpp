#include "trainyard/nn/cuda/managed_memory.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/cuda/check_cuda.h"
#include "trainyard/core/system/system_files.h"
#include "trainyard/nn/execution/device_memory.h"

namespace trainyard::nn::cuda {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using core::Error;
using core::ErrorCode;

void require_moving_pages(c10::DeviceIndex device) {
  for (const cudaDeviceAttr attribute : {cudaDevAttrManagedMemory, cudaDevAttrConcurrentManagedAccess}) {
    int has = 0;
    core::cuda::check_cuda(cudaDeviceGetAttribute(&has, attribute, device), "managed memory of the GPU");
    if (has == 0) {
      throw Error(ErrorCode::kUnsupported, {.problem = "this GPU has no managed memory whose pages move on demand",
                                            .remedy = "leave --use_unified_memory out"});
    }
  }
}

void require_room(c10::DeviceIndex device, int64_t limit) {
  const c10::cuda::CUDAGuard guard(device);
  size_t free = 0, total = 0;
  core::cuda::check_cuda(cudaMemGetInfo(&free, &total), "memory of the GPU");
  const auto host = static_cast<int64_t>(core::memory_info_bytes("MemAvailable"));
  if (limit <= static_cast<int64_t>(free) + host) return;
  throw Error(ErrorCode::kNoSpace, {.problem = "there is not so much managed memory",
                                    .expected = fmt::format("at most {} free on the GPU and {} on the host",
                                                            gibibytes(static_cast<int64_t>(free)), gibibytes(host)),
                                    .actual = gibibytes(limit),
                                    .remedy = "pass a smaller --gpu_memory_frac_for_testing"});
}

}  // namespace

// Null where the budget or the system has no more: LibTorch's allocator gives back what it can and asks again, then
// reports that memory has run out.
void* ManagedMemory::take(Budget& budget, size_t bytes, int device) {
  const auto size = static_cast<int64_t>(bytes);
  if (budget.left.fetch_sub(size) < size) {
    budget.left += size;
    return nullptr;
  }
  void* memory = nullptr;
  if (cudaMallocManaged(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    budget.left += size;
    return nullptr;
  }
  // Without it pages that the host has filled stay there until the GPU faults on each of them.
  core::cuda::check_cuda(cudaMemAdvise(memory, bytes, cudaMemAdviseSetPreferredLocation,
                                       cudaMemLocation{.type = cudaMemLocationTypeDevice, .id = device}),
                         "place of managed memory");
  return memory;
}

ManagedMemory::ManagedMemory(c10::DeviceIndex device, int64_t limit) : device_(device) {
  at::globalContext().lazyInitDevice(c10::kCUDA);  // or LibTorch's allocator knows no device yet
  require_moving_pages(device);
  require_room(device, limit);
  budget_ = std::make_shared<Budget>(limit);
  const c10::cuda::CUDAGuard guard(device);
  pool_ = new at::cuda::MemPool(torch::cuda::CUDAPluggableAllocator::createCustomAllocator(
      [budget = budget_](size_t bytes, int index, cudaStream_t) { return take(*budget, bytes, index); },
      [budget = budget_](void* memory, size_t bytes, int, cudaStream_t) {
        core::cuda::check_cuda(cudaFree(memory), "managed memory given back");
        budget->left += static_cast<int64_t>(bytes);
      }));
  caching::get()->beginAllocateToPool(device, pool_->id(), [](cudaStream_t) { return true; });
}

ManagedMemory::~ManagedMemory() {
  caching::get()->endAllocateToPool(device_, pool_->id());
  caching::get()->releasePool(device_, pool_->id());
}

}  // namespace trainyard::nn::cuda
