// What a tensor's memory costs: allocate, write and free, as an activation lives, with LibTorch's own allocator and
// with ours.
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>
#include <c10/core/CPUAllocator.h>

#include "trainyard/core/memory/block_cache.h"
#include "trainyard/core/memory/cpu_allocator.h"

namespace trainyard::core {
namespace {

void default_allocator(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    c10::DataPtr block = c10::GetDefaultCPUAllocator()->allocate(bytes);
    std::memset(block.get(), 1, bytes);
    benchmark::DoNotOptimize(block.get());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

BlockCache& shared_cache() {
  static auto* cache = new BlockCache(0);
  return *cache;
}

void block_cache(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    void* block = shared_cache().allocate(bytes);
    std::memset(block, 1, bytes);
    benchmark::DoNotOptimize(block);
    shared_cache().free(block);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// The activations of a step: all live at once, then all are freed, which is when glibc gives them back to the system.
template <typename Allocate, typename Free>
void step(benchmark::State& state, Allocate allocate, Free free) {
  constexpr size_t kBytes = size_t{8} << 20;
  std::vector<void*> blocks(24);
  for (auto _ : state) {
    for (void*& block : blocks) std::memset(block = allocate(kBytes), 1, kBytes);
    for (void* block : blocks) free(block);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(blocks.size() * kBytes));
}

void default_allocator_step(benchmark::State& state) {
  c10::Allocator* allocator = c10::GetDefaultCPUAllocator();
  step(
      state, [=](size_t bytes) { return allocator->raw_allocate(bytes); },
      [=](void* block) { allocator->raw_deallocate(block); });
}

void block_cache_step(benchmark::State& state) {
  step(
      state, [](size_t bytes) { return shared_cache().allocate(bytes); },
      [](void* block) { shared_cache().free(block); });
}

// Without touching the memory: the cost of the bookkeeping and its lock.
void block_cache_empty_handed(benchmark::State& state) {
  for (auto _ : state) {
    void* block = shared_cache().allocate(1024);
    benchmark::DoNotOptimize(block);
    shared_cache().free(block);
  }
}

BENCHMARK(default_allocator)->Arg(4 << 10)->Arg(8 << 20)->Arg(64 << 20)->UseRealTime();
BENCHMARK(block_cache)->Arg(4 << 10)->Arg(8 << 20)->Arg(64 << 20)->UseRealTime();
BENCHMARK(default_allocator_step)->UseRealTime();
BENCHMARK(block_cache_step)->UseRealTime();
BENCHMARK(block_cache_empty_handed)->Threads(1)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace trainyard::core
