// CUDA's managed memory, whose pages move between a GPU and the host by themselves, below LibTorch's caching allocator.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <ATen/cuda/MemPool.h>

namespace trainyard::nn::cuda {

// As long as it lives, LibTorch's allocator allocates managed memory for a GPU, in a pool whose segments come from
// here. Tensors may outlive it. Only one per GPU at a time. Any thread may make and destroy it.
//
// Steps cannot be captured meanwhile, because captures need a pool of their own, and tensors must not be shared between
// streams by recordStream(): the allocator keeps those until the pool is destroyed.
class ManagedMemory {
 public:
  // `limit` is in bytes and may exceed the GPU's memory; the rest is on the host. Throws kUnsupported for a GPU whose
  // driver does not migrate pages, kNoSpace when GPU and host together have less memory.
  ManagedMemory(c10::DeviceIndex device, int64_t limit);
  ~ManagedMemory();
  ManagedMemory(const ManagedMemory&) = delete;
  ManagedMemory& operator=(const ManagedMemory&) = delete;

  // Returns the bytes that can still be allocated.
  int64_t free_bytes() const { return budget_->left; }

 private:
  // Shared with the pool's segments, which are freed when the last owner is gone.
  struct Budget {
    explicit Budget(int64_t limit) : left(limit) {}
    std::atomic<int64_t> left;
  };
  static void* take(Budget& budget, size_t bytes, int device);

  c10::DeviceIndex device_;
  std::shared_ptr<Budget> budget_;
  at::cuda::MemPool* pool_;  // never destroyed: tensors in it may outlive everything
};

}  // namespace trainyard::nn::cuda
