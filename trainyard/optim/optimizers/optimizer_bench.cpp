// A step of each optimizer on ResNet-50's parameters, compared with a copy that moves as many bytes as the step reads
// and writes when it accesses each buffer once. The two take turns, so that a busy machine disturbs both: `of_copy` is
// the median of the step's time by the median of the copy's, `cpu_of_copy` the same of processor time, which other
// programs hardly disturb; that one means something with one thread (OMP_NUM_THREADS=1).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <benchmark/benchmark.h>

#include "trainyard/core/base/elapsed.h"
#include "trainyard/optim/optimizers/optimizer.h"

namespace trainyard::optim {
namespace {

using Clock = std::chrono::steady_clock;

// 161 parameters of 25,557,032 elements.
nn::ParameterSet resnet50_parameters() {
  nn::ParameterSet set;
  int number = 0;
  const auto declare = [&](std::vector<int64_t> shape, bool decay) {
    set.declare({.name = "p" + std::to_string(number++),
                 .shape = std::move(shape),
                 .init = nn::Initializer::normal(0.01),
                 .decay = decay});
  };
  const auto convolution = [&](int64_t outputs, int64_t inputs, int64_t kernel) {
    declare({outputs, inputs, kernel, kernel}, true);
    declare({outputs}, false);
    declare({outputs}, false);
  };
  convolution(64, 3, 7);
  int64_t inputs = 64, width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      convolution(width, inputs, 1);
      convolution(width, width, 3);
      convolution(4 * width, width, 1);
      if (block == 0) convolution(4 * width, inputs, 1);
      inputs = 4 * width;
    }
    width *= 2;
  }
  declare({1000, 2048}, true);
  declare({1000}, false);
  set.allocate();
  set.initialize(1);
  return set;
}

// Seconds of each call.
struct Times {
  std::vector<double> wall, processor;

  template <typename Work>
  void measure(const Work& work) {
    const Clock::time_point begin = Clock::now();
    const std::clock_t processor_begin = std::clock();
    work();
    processor.push_back(static_cast<double>(std::clock() - processor_begin) / CLOCKS_PER_SEC);
    wall.push_back(core::seconds_since(begin));
  }
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void copy_bytes(const at::Tensor& from, at::Tensor& to) {
  const auto* source = from.const_data_ptr<float>();
  auto* target = to.mutable_data_ptr<float>();
  at::parallel_for(0, from.numel(), 32768, [&](int64_t begin, int64_t end) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin) * sizeof(float));
  });
}

void step(benchmark::State& benchmark_state, const std::string& name) {
  nn::ParameterSet set = resnet50_parameters();
  const auto optimizer = optimizers().get(name)(set, {.weight_decay = 1e-4});
  set.gradients().fill_(1e-3);
  StepState state;
  state.write({.learning_rate = 1e-6});
  // Reads weights, gradients and slots, writes weights and slots.
  const auto slots = static_cast<int64_t>(optimizer->slots().size());
  const int64_t moved = set.total() * (3 + 2 * slots);
  const at::Tensor from = at::ones({moved / 2});
  at::Tensor to = at::ones({moved / 2});
  Times steps, copies;
  optimizer->apply(state);
  for (auto _ : benchmark_state) {
    steps.measure([&] { optimizer->apply(state); });
    benchmark_state.SetIterationTime(steps.wall.back());
    copies.measure([&] { copy_bytes(from, to); });
  }
  benchmark_state.counters["bytes"] = static_cast<double>(moved) * sizeof(float);
  benchmark_state.counters["median_ms"] = 1e3 * median(steps.wall);
  benchmark_state.counters["of_copy"] = median(steps.wall) / median(copies.wall);
  benchmark_state.counters["cpu_ms"] = 1e3 * median(steps.processor);
  benchmark_state.counters["cpu_of_copy"] = median(steps.processor) / median(copies.processor);
}

#define TRAINYARD_STEP(name) BENCHMARK_CAPTURE(step, name, #name)->UseManualTime()->Unit(benchmark::kMillisecond)
TRAINYARD_STEP(sgd);
TRAINYARD_STEP(tf_momentum);
TRAINYARD_STEP(tf_nesterov);
TRAINYARD_STEP(torch_momentum);
TRAINYARD_STEP(keras_momentum);
TRAINYARD_STEP(tf_rmsprop);
TRAINYARD_STEP(torch_rmsprop);
TRAINYARD_STEP(tf_adam);
TRAINYARD_STEP(torch_adam);
TRAINYARD_STEP(torch_adamw);
TRAINYARD_STEP(torch_nadam);
TRAINYARD_STEP(lars);
TRAINYARD_STEP(lamb);
#undef TRAINYARD_STEP

}  // namespace
}  // namespace trainyard::optim
