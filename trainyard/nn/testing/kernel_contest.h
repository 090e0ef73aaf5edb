// Kernels of one convolution in turns, for benchmarks: one direction, one thread, by the thread's processor time, which
// other programs change little.
#pragma once

#include <algorithm>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <omp.h>

#include "trainyard/nn/cpu/convolution/choice/convolution_choice.h"
#include "trainyard/nn/testing/memory.h"

namespace trainyard::nn::cpu {

class KernelContest {
 public:
  // Takes part: each of the algorithms that has a kernel for it.
  KernelContest(const ConvolutionShape& shape, ConvolutionKernel::Options options,
                std::initializer_list<ConvolutionAlgorithm> algorithms)
      : shape_(shape), direction_(options.direction) {
    omp_set_num_threads(1);
    source_ = memory_.zeros(shape.batch * shape.in_channels * shape.in_height * shape.in_width * 4);
    output_ = memory_.zeros(shape.batch * shape.out_channels * shape.out_height * shape.out_width * 4);
    const int64_t count = shape.out_channels * shape.in_channels * shape.kernel_height * shape.kernel_width;
    auto* const plain = static_cast<float*>(memory_.zeros(count * int64_t{sizeof(float)}));
    for (int64_t i = 0; i < count; ++i) plain[i] = static_cast<float>(i * 7919 % 1021) / 1021 - 0.5F;
    for (const ConvolutionAlgorithm algorithm : algorithms) {
      options.algorithm = algorithm;
      auto kernel = ConvolutionKernel::make(shape, options);
      if (kernel == nullptr) continue;
      void* const packed = memory_.zeros(kernel->weights_bytes());
      void* const scratch = memory_.zeros(kernel->scratch_bytes());
      if (direction_ != ConvolutionDirection::kBackwardWeights) kernel->pack(plain, packed);
      all_.push_back({std::string(name_of(algorithm)), std::move(kernel), packed, scratch});
    }
  }

  // Runs the turns. The counters are the GFLOP/s of the definition's products of the fastest turn of each; the
  // benchmark's own time, which it is to take by hand (UseManualTime()), is that of the kernel that `timed` names.
  void run(benchmark::State& state, const std::string& timed) {
    for (auto _ : state) {
      for (Contestant& one : all_) {
        const double begin = thread_seconds();
        turn(one);
        const double seconds = thread_seconds() - begin;
        one.seconds = std::min(one.seconds, seconds);
        if (one.name == timed) state.SetIterationTime(seconds);
      }
    }
    for (const Contestant& one : all_)
      state.counters[one.name] = static_cast<double>(shape_.flops()) / 1e9 / one.seconds;
  }

 private:
  struct Contestant {
    std::string name;
    std::unique_ptr<ConvolutionKernel> kernel;
    void *packed, *scratch;
    double seconds = 1e9;
  };

  static double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  void turn(const Contestant& one) const {
    switch (direction_) {
      case ConvolutionDirection::kForward:
        return one.kernel->forward(source_, one.packed, nullptr, output_, one.scratch);
      case ConvolutionDirection::kBackwardData:
        return one.kernel->backward_data(output_, one.packed, source_, one.scratch);
      case ConvolutionDirection::kBackwardWeights:
        return one.kernel->backward_weights(source_, output_, one.packed, nullptr, one.scratch);
    }
  }

  BenchMemory memory_;
  const ConvolutionShape shape_;
  const ConvolutionDirection direction_;
  void *source_, *output_;
  std::vector<Contestant> all_;
};

}  // namespace trainyard::nn::cpu
