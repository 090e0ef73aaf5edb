// Where each thread of a team has its part of a kernel's scratch memory: at the same place for all kernels of a plan,
// whose scratch memory is one buffer (PlanBuilder::scratch()). What another thread wrote for the layer before would
// have to be fetched from that thread's core: with parts one behind the other, as large as the layer needs them, the
// second of two threads took 1.8 times as long for the transforms of ResNet-20's convolutions as the first.
#pragma once

#include <cstdint>

namespace trainyard::nn::cpu {

// Returns the distance in bytes between the parts of neighbouring threads, of which each is `part` bytes.
[[gnu::always_inline]] inline int64_t thread_stride(int64_t part) {
  constexpr int64_t kUnit = int64_t{1} << 20;  // most parts are smaller, since they shall stay in a core's cache
  return (part + kUnit - 1) / kUnit * kUnit;
}

// Returns the bytes of the parts of `threads` threads.
[[gnu::always_inline]] inline int64_t thread_scratch_bytes(int64_t part, int64_t threads) {
  return (threads - 1) * thread_stride(part) + part;
}

}  // namespace trainyard::nn::cpu
