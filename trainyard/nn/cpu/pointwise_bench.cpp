// Convolutions with 1x1 windows at shapes of ResNet-50, without a bias, and of ConvNeXt-Tiny and ViT-B/16, with one, at
// batch 32: our kernels in turn with oneDNN's, all three directions. The counters are the GFLOP/s of the fastest turn
// of each, since other programs on the machine only make turns slower. The benchmark's own time is that of our kernel.
#include <algorithm>
#include <cstring>

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "trainyard/core/testing/seconds_of.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/nn/cpu/convolution/onednn/onednn_convolution.h"
#include "trainyard/nn/cpu/convolution/pointwise/pointwise_convolution.h"
#include "trainyard/nn/testing/memory.h"

namespace trainyard::nn::cpu {
namespace {

// Memory that both kernels can use, and a run of one of them.
class Bench {
 public:
  Bench(const ConvolutionShape& s, ConvolutionDirection direction)
      : direction_(direction),
        bias_(s.bias ? static_cast<float*>(memory_.zeros(s.out_channels * int64_t{sizeof(float)})) : nullptr),
        source_(map(s.batch * s.in_channels * s.in_height * s.in_width)) {
    output_ = map(s.batch * s.out_channels * s.out_height * s.out_width);
    weights_ = map(2 * s.in_channels * s.out_channels);
    scratch_ = memory_.zeros(int64_t{64} << 20);
  }

  void run(const ConvolutionKernel& kernel) {
    switch (direction_) {
      case ConvolutionDirection::kForward:
        return kernel.forward(source_, weights_, bias_, output_, scratch_);
      case ConvolutionDirection::kBackwardData:
        return kernel.backward_data(output_, weights_, source_, scratch_);
      case ConvolutionDirection::kBackwardWeights:
        return kernel.backward_weights(source_, output_, weights_, bias_, scratch_);
    }
  }

 private:
  // Numbers that are neither denormal nor huge.
  void* map(int64_t elements) {
    auto* const numbers = static_cast<float*>(memory_.zeros(elements * 4));
    for (int64_t i = 0; i < elements; ++i) numbers[i] = static_cast<float>(i * 7919 % 1021) / 1021 - 0.5F;
    return numbers;
  }

  BenchMemory memory_;
  ConvolutionDirection direction_;
  float* bias_;
  void *source_, *output_, *weights_, *scratch_;
};

void pointwise(benchmark::State& state, ConvolutionDirection direction) {
  at::set_num_threads(core::available_cores());
  const int64_t pixels = state.range(0);
  const ConvolutionShape shape = {.batch = 32,
                                  .in_channels = state.range(1),
                                  .out_channels = state.range(2),
                                  .in_height = pixels,
                                  .in_width = 1,
                                  .out_height = pixels,
                                  .out_width = 1,
                                  .bias = state.range(3) != 0};
  const auto ours = make_pointwise_convolution(shape, {.direction = direction});
  const auto other = make_onednn_convolution(shape, {.direction = direction}, false);
  Bench bench(shape, direction);
  double our_seconds = 1e9, other_seconds = 1e9;
  for (auto _ : state) {
    const double seconds = core::seconds_of([&] { bench.run(*ours); });
    state.SetIterationTime(seconds);
    our_seconds = std::min(our_seconds, seconds);
    other_seconds = std::min(other_seconds, core::seconds_of([&] { bench.run(*other); }));
  }
  const double gflop = static_cast<double>(shape.flops()) / 1e9;
  state.counters["GFLOP/s"] = gflop / our_seconds;
  state.counters["dnnl_GFLOP/s"] = gflop / other_seconds;
  state.counters["dnnl_ms"] = 1e3 * other_seconds;
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  // Pixels, inputs, outputs, whether there is a bias.
  benchmark->Args({56 * 56, 64, 256, 0})->Args({28 * 28, 512, 128, 0})->Args({14 * 14, 1024, 256, 0});
  for (const int64_t size : {56, 28, 14, 7}) {
    const int64_t channels = 96 * 56 / size;
    benchmark->Args({size * size, channels, 4 * channels, 1})->Args({size * size, 4 * channels, channels, 1});
  }
  for (const int64_t outputs : {768, 2304, 3072}) benchmark->Args({197, 768, outputs, 1});
  benchmark->Args({197, 3072, 768, 1});
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(pointwise, forward, ConvolutionDirection::kForward)->Apply(shapes);
BENCHMARK_CAPTURE(pointwise, backward_data, ConvolutionDirection::kBackwardData)->Apply(shapes);
BENCHMARK_CAPTURE(pointwise, backward_weights, ConvolutionDirection::kBackwardWeights)->Apply(shapes);

}  // namespace
}  // namespace trainyard::nn::cpu
