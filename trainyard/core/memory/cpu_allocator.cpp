#include "trainyard/core/memory/cpu_allocator.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <c10/core/CPUAllocator.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/memory/block_cache.h"
#include "trainyard/core/system/cgroup.h"

namespace trainyard::core {
namespace {

// Never destroyed: tensors may outlive main.
BlockCache& cache() {
  static auto* instance = new BlockCache(/*limit_bytes=*/0);
  return *instance;
}

void free_block(void* data) {
  cache().free(data);
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : cache().allocate(bytes);
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

// What tensors may take of a control group's limit: the program's code, its stacks and what other libraries allocate
// count there too, and passing it ends the program without a word.
uint64_t tensor_share(uint64_t limit_bytes) {
  constexpr uint64_t kMostOfOthers = uint64_t{512} << 20;
  return limit_bytes - std::min(limit_bytes / 8, kMostOfOthers);
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif

std::atomic<bool> installed = false;

}  // namespace

bool install_cpu_allocator(uint64_t limit_bytes) {
  if (kAddressSanitizer) {
    log::info("the caching CPU allocator is off: AddressSanitizer must see every block");
    return false;
  }
  if (limit_bytes == 0) {
    if (const auto group = cgroup_limits().memory_bytes) limit_bytes = tensor_share(*group);
  }
  cache().set_limit(limit_bytes);
  if (!installed.exchange(true)) {
    static auto* allocator = new CachingAllocator;
    c10::SetCPUAllocator(allocator, /*priority=*/255);
  }
  return true;
}

bool cpu_allocator_installed() {
  return installed;
}

CpuMemory zeroed_cpu_memory(size_t bytes) {
  if (installed) return {cache().allocate_zeroed(bytes), &free_block};
  c10::DataPtr data = c10::GetDefaultCPUAllocator()->allocate(bytes);
  std::memset(data.get(), 0, bytes);
  return {data.release_context(), c10::GetDefaultCPUAllocator()->raw_deleter()};
}

CpuAllocatorStatistics cpu_allocator_statistics() {
  return cache().statistics();
}

uint64_t trim_cpu_allocator() {
  return cache().trim();
}

}  // namespace trainyard::core
