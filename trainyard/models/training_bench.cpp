// Training steps of the zoo's models with the reference executor: forward, loss, backward into the set, SGD. Images a
// second are `items_per_second`. All cores; the caching allocator as the program has it.

#include <string>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/gradient_sink.h"
#include "trainyard/nn/execution/loss.h"

namespace trainyard::models {
namespace {

void train(benchmark::State& state, const std::string& model, const std::string& dataset) {
  core::install_cpu_allocator();
  at::set_num_threads(core::available_cores());
  const nn::Graph graph = build_model(model, dataset, {.num_classes = 10});
  nn::ParameterSet set;
  nn::GradientSink sink(set);
  const auto executor = nn::make_executor("reference", graph, {.parameters = &set, .gradients = &sink});
  set.allocate();
  set.initialize(1);
  const int64_t batch = state.range(0), size = graph.input_shape()[1];
  const at::Tensor images = at::randn({batch, 3, size, size}), labels = at::randint(10, {batch}, at::kLong);
  int64_t step = 0;
  for (auto _ : state) {
    sink.begin(0, 1);
    at::Tensor loss = nn::softmax_cross_entropy(executor->forward(images, {.step = step++}), labels);
    loss.backward();
    sink.finish();
    const at::NoGradGuard no_grad;
    set.values().add_(set.gradients(), -0.001);
    set.values_changed();
  }
  state.SetItemsProcessed(state.iterations() * batch);
}

BENCHMARK_CAPTURE(train, resnet20, "resnet20", "cifar10")
    ->Arg(128)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK_CAPTURE(train, resnet50, "resnet50_v1.5", "imagenet")
    ->Arg(16)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace trainyard::models
