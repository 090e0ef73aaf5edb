// Finds writes outside of tensors' memory, by LibTorch's operators and oneDNN's generated code, which no sanitizer
// sees.
//
//   GuardedMemory guarded;           // from here on tensors, and oneDNN's scratch memory, lie between two fences
//   ... at::convolution(...) ...
//   EXPECT_EQ(guarded.broken(), 0);  // of those that were freed
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include <c10/core/CPUAllocator.h>

namespace trainyard::nn {

// LibTorch's allocator once there was a GuardedMemory, for the rest of the program: some memory is freed late, by
// whatever allocator is there then. All bytes of a block and of its fences begin as NaN, so that reading them shows in
// results.
class FencingAllocator final : public c10::Allocator {
 public:
  static FencingAllocator& instance() {
    static auto* const allocator = [] {
      auto* made = new FencingAllocator(c10::GetCPUAllocator());
      c10::SetCPUAllocator(made, /*priority=*/255);
      return made;
    }();
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (!fences) return other_.allocate(bytes);
    void* const data = fenced(bytes);
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  std::atomic<bool> fences = false;
  std::atomic<int64_t> broken = 0;

 private:
  static constexpr size_t kFence = size_t{1} << 13;
  static constexpr unsigned char kByte = 0xFF;

  explicit FencingAllocator(c10::Allocator* other) : other_(*other) {}

  void* fenced(size_t bytes) {
    const size_t size = (bytes + 2 * kFence + 63) / 64 * 64;
    auto* const start = static_cast<unsigned char*>(std::aligned_alloc(64, size));
    std::memset(start, kByte, size);
    const std::lock_guard lock(mutex_);
    sizes_[start + kFence] = bytes;
    return start + kFence;
  }

  static void free_block(void* data) {
    FencingAllocator& self = instance();
    size_t bytes = 0;
    {
      const std::lock_guard lock(self.mutex_);
      const auto found = self.sizes_.find(data);
      if (found == self.sizes_.end()) return self.other_.raw_deleter()(data);
      bytes = found->second;
      self.sizes_.erase(found);
    }
    unsigned char* const start = static_cast<unsigned char*>(data) - kFence;
    const auto holds = [](const unsigned char* fence) {
      return std::all_of(fence, fence + kFence, [](unsigned char byte) { return byte == kByte; });
    };
    if (!holds(start) || !holds(start + kFence + bytes)) ++self.broken;
    std::free(start);
  }

  c10::Allocator& other_;
  std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;
};

class GuardedMemory {
 public:
  GuardedMemory() {
    FencingAllocator::instance().broken = 0;
    FencingAllocator::instance().fences = true;
  }
  ~GuardedMemory() { FencingAllocator::instance().fences = false; }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // Blocks that were freed with another byte in a fence, since the beginning.
  int64_t broken() const { return FencingAllocator::instance().broken; }
};

}  // namespace trainyard::nn
