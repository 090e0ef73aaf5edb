// Strassen's convolutions at shapes of ViT-B/16 and ResNet-50 for inference, in turns with the other kernels for them,
// on one thread. The counters are the GFLOP/s of the definition's products by the thread's processor time, which other
// programs change little, of the fastest turn of each.
#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <omp.h>

#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"
#include "trainyard/nn/testing/memory.h"

namespace trainyard::nn::cpu {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A kernel with packed weights.
struct Contestant {
  Contestant(ConvolutionAlgorithm of, std::unique_ptr<ConvolutionKernel> made, const float* plain, BenchMemory& memory)
      : name(name_of(of)), kernel(std::move(made)) {
    packed = memory.zeros(kernel->weights_bytes());
    scratch = memory.zeros(kernel->scratch_bytes());
    kernel->pack(plain, packed);
  }

  std::string name;
  std::unique_ptr<ConvolutionKernel> kernel;
  void *packed, *scratch;
  double seconds = 1e9;
};

std::vector<Contestant> contestants(const ConvolutionShape& shape, BenchMemory& memory) {
  const int64_t count = shape.out_channels * shape.in_channels * shape.kernel_height * shape.kernel_width;
  auto* const plain = static_cast<float*>(memory.zeros(count * int64_t{sizeof(float)}));
  for (int64_t i = 0; i < count; ++i) plain[i] = static_cast<float>(i * 7919 % 1021) / 1021 - 0.5F;
  std::vector<Contestant> all;
  using Algorithm = ConvolutionAlgorithm;
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kPointwise, Algorithm::kStrassen}) {
    auto kernel = ConvolutionKernel::make(shape, {.algorithm = algorithm, .inference = true});
    if (kernel != nullptr) all.emplace_back(algorithm, std::move(kernel), plain, memory);
  }
  return all;
}

void strassen(benchmark::State& state, DataType dtype) {
  omp_set_num_threads(1);
  const int64_t size = state.range(1), kernel = state.range(4), stride = state.range(5),
                out = (size + stride - 1) / stride;
  const ConvolutionShape shape{.batch = state.range(0),
                               .in_channels = state.range(2),
                               .out_channels = state.range(3),
                               .in_height = size,
                               .in_width = size,
                               .out_height = out,
                               .out_width = out,
                               .kernel_height = kernel,
                               .kernel_width = kernel,
                               .stride_height = stride,
                               .stride_width = stride,
                               .top = kernel / 2,
                               .left = kernel / 2,
                               .bottom = kernel / 2 - (size % stride == 0 ? stride - 1 : 0),
                               .right = kernel / 2 - (size % stride == 0 ? stride - 1 : 0),
                               .dtype = dtype};
  BenchMemory memory;
  std::vector<Contestant> all = contestants(shape, memory);
  void* const source = memory.zeros(shape.batch * shape.in_channels * size * size * 4);
  void* const output = memory.zeros(shape.batch * shape.out_channels * out * out * 4);
  for (auto _ : state) {
    for (Contestant& one : all) {
      const double begin = thread_seconds();
      one.kernel->forward(source, one.packed, nullptr, output, one.scratch);
      one.seconds = std::min(one.seconds, thread_seconds() - begin);
    }
  }
  for (const Contestant& one : all) state.counters[one.name] = 1e-9 * static_cast<double>(shape.flops()) / one.seconds;
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
  benchmark->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(strassen, fp32, DataType::kFloat)->Apply(shapes);
BENCHMARK_CAPTURE(strassen, bf16, DataType::kBfloat16)->Apply(shapes);

}  // namespace
}  // namespace trainyard::nn::cpu
