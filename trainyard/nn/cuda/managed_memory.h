// CUDA's managed memory, whose pages move between a GPU and the host by themselves, below LibTorch's caching allocator.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <ATen/cuda/MemPool.h>

namespace trainyard::nn::cuda {

// As long as it lives, what LibTorch takes of a GPU's memory is managed memory: a pool of its allocator whose segments
// come from here. Tensors may outlive it. One for a GPU at a time; opened and ended on any thread.
//
// Steps cannot be captured meanwhile, since their memory is a pool of its own, and tensors must not be shared between
// streams by recordStream(): the allocator keeps those until the pool has ended.
class ManagedMemory {
 public:
  // `limit`: bytes, which may be more than the GPU has; the rest lies on the host. Throws kUnsupported for a GPU whose
  // driver does not move pages, kNoSpace where GPU and host together do not have so much.
  ManagedMemory(c10::DeviceIndex device, int64_t limit);
  ~ManagedMemory();
  ManagedMemory(const ManagedMemory&) = delete;
  ManagedMemory& operator=(const ManagedMemory&) = delete;

  // Bytes that can still be taken.
  int64_t free_bytes() const { return budget_->left; }

 private:
  // Segments are given back when nobody knows of this object any more.
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
