// The yardstick of `make bench-kernels`: fixed work that no change of the library touches. Others are compared as
// multiples of its time, so that a baseline from one machine means something on another.
#include <array>
#include <cstdint>
#include <numeric>

#include <benchmark/benchmark.h>

namespace {

// Integer and floating-point chains over 16 KiB, which stay in the first cache of any machine.
void calibration(benchmark::State& state) {
  std::array<float, 4096> values;
  std::iota(values.begin(), values.end(), 1.0f);
  uint32_t hash = 1;
  for ([[maybe_unused]] auto iteration : state) {
    for (float& value : values) {
      hash = hash * 1664525 + 1013904223;
      value = value * 0.999f + static_cast<float>(hash >> 24);
    }
    benchmark::DoNotOptimize(values.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(calibration);

}  // namespace
