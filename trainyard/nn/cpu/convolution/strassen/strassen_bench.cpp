// Strassen's convolutions at shapes of ViT-B/16 and ResNet-50 for inference, in turns with the other kernels for them,
// on one thread. The counters are the GFLOP/s of the definition's products by the thread's processor time, which other
// programs change little, of the fastest turn of each.
#include <benchmark/benchmark.h>

#include "trainyard/nn/testing/convolution_shapes.h"
#include "trainyard/nn/testing/kernel_contest.h"

namespace trainyard::nn::cpu {
namespace {

void strassen(benchmark::State& state, DataType dtype) {
  const int64_t size = state.range(1), kernel = state.range(4);
  ConvolutionShape shape =
      square(state.range(0), state.range(2), state.range(3), size, size, kernel, state.range(5), kernel / 2);
  shape.dtype = dtype;
  using Algorithm = ConvolutionAlgorithm;
  KernelContest(shape, {.inference = true}, {Algorithm::kDirect, Algorithm::kPointwise, Algorithm::kStrassen})
      .run(state, "strassen");
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"batch", "size", "in", "out", "kernel", "stride"});
  for (const int64_t outputs : {768, 2304, 3072}) benchmark->Args({1, 14, 768, outputs, 1, 1});  // ViT-B/16
  benchmark->Args({1, 14, 3072, 768, 1, 1});
  benchmark->Args({1, 56, 256, 64, 1, 1})->Args({1, 28, 512, 128, 1, 1})->Args({1, 28, 128, 512, 1, 1});
  benchmark->Args({1, 14, 1024, 256, 1, 1})->Args({1, 14, 256, 1024, 1, 1});
  benchmark->Args({1, 7, 2048, 512, 1, 1})->Args({1, 7, 512, 2048, 1, 1});
  benchmark->Args({1, 56, 128, 128, 3, 2})->Args({1, 28, 256, 256, 3, 2})->Args({1, 14, 512, 512, 3, 2});
  benchmark->Args({1, 56, 256, 512, 1, 2})->Args({1, 28, 512, 1024, 1, 2})->Args({1, 14, 1024, 2048, 1, 2});
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(strassen, fp32, DataType::kFloat)->Apply(shapes);
BENCHMARK_CAPTURE(strassen, bf16, DataType::kBfloat16)->Apply(shapes);

}  // namespace
}  // namespace trainyard::nn::cpu
