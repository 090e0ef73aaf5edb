// Convolutions of bytes at shapes of ResNet-50, MobileNet v2 and ViT-B/16. The counters are the GOP/s of the fastest
// turn (a multiplication and an addition are two), since other programs on the machine only make turns slower, and its
// share of what the processor's instruction for bytes can do, which a loop without memory measures.
#include <algorithm>
#include <chrono>

#include <benchmark/benchmark.h>
#include <omp.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/core/testing/seconds_of.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/cpu/quantized/quantized_convolution.h"
#include "trainyard/nn/testing/memory.h"

namespace trainyard::nn::cpu {
namespace {

// Sixteen sums, so that none waits for itself.
#define TRAINYARD_STEP(dot, r, n) dot " %%" r "15, %%" r "14, %%" r n "\n"
// clang-format off
#define TRAINYARD_STEPS(dot, r) \
  TRAINYARD_STEP(dot, r, "0") TRAINYARD_STEP(dot, r, "1") TRAINYARD_STEP(dot, r, "2") TRAINYARD_STEP(dot, r, "3") \
  TRAINYARD_STEP(dot, r, "4") TRAINYARD_STEP(dot, r, "5") TRAINYARD_STEP(dot, r, "6") TRAINYARD_STEP(dot, r, "7") \
  TRAINYARD_STEP(dot, r, "8") TRAINYARD_STEP(dot, r, "9") TRAINYARD_STEP(dot, r, "10") TRAINYARD_STEP(dot, r, "11") \
  TRAINYARD_STEP(dot, r, "12") TRAINYARD_STEP(dot, r, "13")
// clang-format on
#define TRAINYARD_CLOBBERS                                                                                            \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"

// Returns the operations of `turns` turns of one thread.
double multiply_in_registers(int64_t turns, bool wide) {
  for (int64_t i = 0; i < turns; ++i) {
    if (wide) {
      __asm__ volatile(TRAINYARD_STEPS("vpdpbusd", "zmm") TRAINYARD_STEPS("vpdpbusd", "zmm")::: TRAINYARD_CLOBBERS);
    } else {
      __asm__ volatile(TRAINYARD_STEPS("%{vex%} vpdpbusd", "ymm") TRAINYARD_STEPS("%{vex%} vpdpbusd", "ymm")::
                           : TRAINYARD_CLOBBERS);
    }
  }
  return static_cast<double>(turns) * 28 * (wide ? 128 : 64);
}

// Returns the operations per second that all threads can do, or 0 without the instruction.
double limit() {
  static const double most = [] {
    if (!has_vnni()) return 0.0;
    double best = 0;
    for (int i = 0; i < 200; ++i) {
      double operations = 0;
      const auto start = std::chrono::steady_clock::now();
#pragma omp parallel reduction(+ : operations)
      operations += multiply_in_registers(10'000, isa() != Isa::kAvx2);
      best = std::max(best, operations / core::seconds_since(start));
    }
    return best;
  }();
  return most;
}

void quantized(benchmark::State& state) {
  omp_set_num_threads(core::available_cores());
  const int64_t batch = state.range(0), in = state.range(1), out = state.range(2), height = state.range(3),
                width = state.range(4), kernel = state.range(5), stride = state.range(6);
  const bool residual = state.range(7) != 0;
  const int64_t before = kernel == 16 ? 0 : kernel / 2, block = channel_block();
  const auto outputs = [&](int64_t size) { return (size + 2 * before - kernel) / stride + 1; };
  QuantizedConvolution a{.input_shape = {batch, in, height, width, in <= 4 ? 4 : block},
                         .output_shape = {batch, out, outputs(height), width == 1 ? 1 : outputs(width), block},
                         .window = {.kernel_height = kernel,
                                    .kernel_width = kernel,
                                    .stride_height = stride,
                                    .stride_width = stride,
                                    .top = before,
                                    .left = before},
                         .vnni = has_vnni(),
                         .input_zero = 3,
                         .threads = omp_get_max_threads()};
  a.winograd = is_faster_by_winograd(a);
  a.clipped = !a.winograd && is_faster_clipped(a);
  BenchMemory memory;
  const int64_t padded = a.output_shape.padded_channels();
  auto* const factors = static_cast<float*>(memory.zeros(padded * 4));
  std::fill_n(factors, padded, 1e-4F);
  auto* const input = static_cast<uint8_t*>(memory.zeros(a.input_shape.elements()));
  // Every 200th is far from the zero point, which is usual for activations.
  for (int64_t i = 0; i < a.input_shape.elements(); i += 199) input[i] = 200;
  a.input = input;
  a.weights = static_cast<int8_t*>(memory.zeros(a.packed_bytes()));
  a.offsets = static_cast<int32_t*>(memory.zeros(padded * 4));
  a.factors = factors;
  a.bias = static_cast<float*>(memory.zeros(padded * 4));
  a.to = {.output = memory.zeros(a.output_shape.elements()), .activation = UnitActivation::kRelu};
  if (residual) a.to.residual = memory.zeros(a.output_shape.elements());
  a.scratch = memory.zeros(std::max<int64_t>(quantized_convolution_scratch_bytes(a), 1));
  double seconds = 1e9;
  for (auto _ : state) {
    const double taken = core::seconds_of([&] { quantized_convolution(a); });
    state.SetIterationTime(taken);
    seconds = std::min(seconds, taken);
  }
  const double operations = 2.0 * static_cast<double>(batch * out * a.output_shape.pixels() * in * kernel * kernel);
  state.counters["GOP/s"] = operations / seconds / 1e9;
  if (limit() > 0) state.counters["of_limit_%"] = 100 * operations / seconds / limit();
  if (limit() > 0) state.counters["limit_GOP/s"] = limit() / 1e9;
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  // Batch, input channels, output channels, height, width, window, stride, whether a residual is added.
  for (const int64_t batch : {1, 32}) {
    benchmark->Args({batch, 3, 64, 224, 224, 7, 2, 0});  // ResNet-50
    for (const int64_t size : {56, 28, 14, 7}) {
      const int64_t channels = 64 * 56 / size;
      benchmark->Args({batch, channels, channels, size, size, 3, 1, 0});
      benchmark->Args({batch, channels, 4 * channels, size, size, 1, 1, 0});
      benchmark->Args({batch, channels, 4 * channels, size, size, 1, 1, 1});
      benchmark->Args({batch, 4 * channels, channels, size, size, 1, 1, 0});
      if (size == 7) continue;
      benchmark->Args({batch, 4 * channels, 2 * channels, size, size, 1, 1, 0});
      benchmark->Args({batch, 2 * channels, 2 * channels, size, size, 3, 2, 0});
      benchmark->Args({batch, 4 * channels, 8 * channels, size, size, 1, 2, 0});
    }
    benchmark->Args({batch, 3, 32, 224, 224, 3, 2, 0});  // MobileNet v2
    benchmark->Args({batch, 32, 16, 112, 112, 1, 1, 0})->Args({batch, 16, 96, 112, 112, 1, 1, 0});
    benchmark->Args({batch, 24, 144, 56, 56, 1, 1, 0})->Args({batch, 144, 24, 56, 56, 1, 1, 0});
    benchmark->Args({batch, 64, 384, 14, 14, 1, 1, 0})->Args({batch, 384, 64, 14, 14, 1, 1, 0});
    benchmark->Args({batch, 160, 960, 7, 7, 1, 1, 0})->Args({batch, 960, 160, 7, 7, 1, 1, 0});
    benchmark->Args({batch, 320, 1280, 7, 7, 1, 1, 0});
  }
  for (const int64_t batch : {1, 16}) {
    benchmark->Args({batch, 3, 768, 224, 224, 16, 16, 0});  // ViT-B/16
    for (const int64_t outputs : {768, 2304, 3072}) benchmark->Args({batch, 768, outputs, 197, 1, 1, 1, 0});
    benchmark->Args({batch, 3072, 768, 197, 1, 1, 1, 0});
  }
  benchmark->ArgNames({"batch", "in", "out", "h", "w", "window", "stride", "residual"});
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK(quantized)->Apply(shapes);

}  // namespace
}  // namespace trainyard::nn::cpu
