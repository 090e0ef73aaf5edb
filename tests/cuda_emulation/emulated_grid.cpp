#include "tests/cuda_emulation/emulated_grid.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include <ucontext.h>

dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace cuda_emulation {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr unsigned kMostThreads = 1024, kMostRowsOfBlocks = 65535;
constexpr size_t kMostShared = size_t{48} << 10;

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  dim3 index;
  bool ended = false;
};

ucontext_t scheduler;
Fiber* running = nullptr;
const std::function<void()>* work = nullptr;
std::vector<Fiber> fibers;
std::vector<char> shared;

void fiber_main() {
  (*work)();
  running->ended = true;
}

void resume(Fiber& fiber) {
  running = &fiber;
  threadIdx = fiber.index;
  swapcontext(&scheduler, &fiber.context);
}

void run_block(unsigned threads, bool backwards) {
  std::fill(shared.begin(), shared.end(), static_cast<char>(0xFF));
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& fiber = fibers[t];
    if (fiber.stack == nullptr) fiber.stack = std::make_unique<char[]>(kStackBytes);
    fiber.index = {t % blockDim.x, t / blockDim.x};
    fiber.ended = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, fiber_main, 0);
  }
  for (bool any = true; any;) {
    any = false;
    for (unsigned i = 0; i < threads; ++i) {
      Fiber& fiber = fibers[backwards ? threads - 1 - i : i];
      if (fiber.ended) continue;
      resume(fiber);
      any = any || !fiber.ended;
    }
  }
}

}  // namespace

void launch(const LaunchShape& shape, const std::function<void()>& thread) {
  static bool backwards = false;
  const unsigned threads = shape.block.x * shape.block.y * shape.block.z;
  const bool empty = threads == 0 || shape.grid.x == 0 || shape.grid.y == 0;
  if (empty || threads > kMostThreads || shape.grid.y > kMostRowsOfBlocks || shape.shared_bytes > kMostShared ||
      shape.block.z != 1 || shape.grid.z != 1) {
    throw std::invalid_argument("a kernel cannot be launched so");
  }
  backwards = !backwards;
  gridDim = shape.grid;
  blockDim = shape.block;
  if (fibers.size() < threads) fibers.resize(kMostThreads);
  shared.resize(shape.shared_bytes);
  work = &thread;
  const uint64_t blocks = uint64_t{shape.grid.x} * shape.grid.y;
  for (uint64_t b = 0; b < blocks; ++b) {
    const uint64_t own = backwards ? blocks - 1 - b : b;
    blockIdx = {static_cast<unsigned>(own % shape.grid.x), static_cast<unsigned>(own / shape.grid.x)};
    run_block(threads, backwards);
  }
}

void* dynamic_shared() {
  return shared.data();
}

}  // namespace cuda_emulation

void __syncthreads() {
  using namespace cuda_emulation;
  swapcontext(&running->context, &scheduler);
}
