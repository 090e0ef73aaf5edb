// Depthwise convolutions of bytes at the shapes of MobileNetV2, and grouped ones of ResNeXt-50 (32x4d), at one image.
// Channels, size of the image, width of a group, size of the window, stride. The counters are products and sums a
// second, and the bytes of both maps a second, of the fastest run.
#include <algorithm>

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "trainyard/core/testing/seconds_of.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/cpu/simd/kernels.h"
#include "trainyard/nn/testing/memory.h"

namespace trainyard::nn::cpu {
namespace {

void grouped_bytes(benchmark::State& state) {
  at::set_num_threads(core::available_cores());
  const int64_t channels = state.range(0), size = state.range(1), kernel = state.range(3), stride = state.range(4);
  const MapShape in = {1, channels, size, size, channel_block()};
  MapShape out = in;
  out.height = out.width = (size - 1) / stride + 1;
  QuantizedGroupedConvolution a;
  a.input_shape = in;
  a.output_shape = out;
  a.groups = channels / state.range(2);
  a.window = {kernel, kernel, stride, stride, kernel / 2, kernel / 2};
  a.vnni = has_vnni();
  a.threads = core::available_cores();
  BenchMemory memory;
  const auto numbers = [&](float value) {
    auto* const floats = static_cast<float*>(memory.zeros(out.padded_channels() * int64_t{sizeof(float)}));
    std::fill_n(floats, out.padded_channels(), value);
    return floats;
  };
  a.input = static_cast<uint8_t*>(memory.zeros(in.elements()));
  a.weights = static_cast<int8_t*>(memory.zeros(a.packed_bytes()));
  a.offsets = static_cast<int32_t*>(memory.zeros(out.padded_channels() * int64_t{sizeof(int32_t)}));
  a.factors = numbers(0.01F);
  a.bias = numbers(1);
  a.scratch = memory.zeros(a.scratch_bytes());
  a.to = {.output = memory.zeros(out.elements()), .inverse_scale = 9, .activation = UnitActivation::kRelu6};
  double seconds = 1e9;
  for (auto _ : state) {
    const double taken = core::seconds_of([&] { quantized_grouped_convolution(a); });
    state.SetIterationTime(taken);
    seconds = std::min(seconds, taken);
  }
  const auto products = static_cast<double>(out.channels * out.pixels() * kernel * kernel * state.range(2));
  state.counters["GOP/s"] = 2e-9 * products / seconds;
  state.counters["GB/s"] = 1e-9 * static_cast<double>(in.elements() + out.elements()) / seconds;
  state.counters["us"] = 1e6 * seconds;
}

BENCHMARK(grouped_bytes)
    ->Args({32, 112, 1, 3, 1})
    ->Args({96, 112, 1, 3, 2})
    ->Args({144, 56, 1, 3, 1})
    ->Args({144, 56, 1, 3, 2})
    ->Args({192, 28, 1, 3, 1})
    ->Args({192, 28, 1, 3, 2})
    ->Args({384, 14, 1, 3, 1})
    ->Args({576, 14, 1, 3, 1})
    ->Args({576, 14, 1, 3, 2})
    ->Args({960, 7, 1, 3, 1})
    ->Args({120, 28, 1, 5, 1})
    ->Args({128, 56, 4, 3, 1})
    ->Args({256, 28, 8, 3, 1})
    ->Args({512, 14, 16, 3, 1})
    ->Args({1024, 7, 32, 3, 1})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace trainyard::nn::cpu
