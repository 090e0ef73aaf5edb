// Convolutions with 3x3 windows in bfloat16 at shapes of airbench94, ResNet-50 and ResNet-20 for CIFAR-10: Winograd's
// F(2x2, 3x3), F(3x3, 3x3) and the direct kernels in turns.
#include <benchmark/benchmark.h>

#include "trainyard/nn/testing/convolution_shapes.h"
#include "trainyard/nn/testing/kernel_contest.h"

namespace trainyard::nn::cpu {
namespace {

void winograd_bf16(benchmark::State& state, ConvolutionDirection direction) {
  const int64_t size = state.range(1);
  const ConvolutionShape shape =
      in_bfloats(square(state.range(0), state.range(2), state.range(3), size, size, 3, 1, 1));
  using Algorithm = ConvolutionAlgorithm;
  const Algorithm direct =
      direction == ConvolutionDirection::kBackwardWeights ? Algorithm::kPixelPairs : Algorithm::kDirect;
  KernelContest(shape, {.direction = direction}, {Algorithm::kWinograd, Algorithm::kWinograd3, direct})
      .run(state, "winograd3");
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  // Batch, pixels a side, inputs, outputs.
  benchmark->Args({100, 31, 24, 64})->Args({100, 15, 64, 64})->Args({100, 15, 64, 256});
  benchmark->Args({100, 7, 256, 256})->Args({100, 3, 256, 256});
  benchmark->Args({32, 56, 64, 64})->Args({32, 28, 128, 128})->Args({32, 14, 256, 256})->Args({32, 7, 512, 512});
  benchmark->Args({128, 16, 32, 32})->Args({128, 8, 64, 64});
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(winograd_bf16, forward, ConvolutionDirection::kForward)->Apply(shapes);
BENCHMARK_CAPTURE(winograd_bf16, backward_data, ConvolutionDirection::kBackwardData)->Apply(shapes);
BENCHMARK_CAPTURE(winograd_bf16, backward_weights, ConvolutionDirection::kBackwardWeights)->Apply(shapes);

}  // namespace
}  // namespace trainyard::nn::cpu
