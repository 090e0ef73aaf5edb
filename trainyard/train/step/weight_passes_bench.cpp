// What clipping, averages, masks and the look for NaN take out of a step: each pass over ResNet-50's parameters alone.
// Compared with the seconds of a step (docs/benchmarks.md).

#include <memory>
#include <optional>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <benchmark/benchmark.h>

#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/optim/averages/weight_average.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/finite.h"

namespace trainyard::train {
namespace {

class WeightPasses : public benchmark::Fixture {
 public:
  void SetUp(benchmark::State&) override {
    core::install_cpu_allocator();
    const nn::Graph graph = models::build_model("resnet50_v1.5", "imagenet", {.num_classes = 1000});
    set = std::make_unique<nn::ParameterSet>();
    const auto executor = nn::make_executor("reference", graph, {.parameters = set.get()});
    set->allocate();
    set->initialize(1);
    set->gradients().copy_(set->values()).mul_(0.01);
  }
  void TearDown(benchmark::State&) override { set.reset(); }

  void update(benchmark::State& state, const std::optional<optim::NormClip>& clip) {
    const auto optimizer = optim::optimizers().get("tf_nesterov")(*set, {.weight_decay = 1e-4, .norm_clip = clip});
    optim::StepState step;
    step.write({.learning_rate = 1e-6});
    for (auto _ : state) optimizer->apply(step);
  }

  std::unique_ptr<nn::ParameterSet> set;
};

BENCHMARK_DEFINE_F(WeightPasses, nesterov)(benchmark::State& state) {
  update(state, std::nullopt);
}
BENCHMARK_DEFINE_F(WeightPasses, nesterov_clip_norm)(benchmark::State& state) {
  update(state, optim::NormClip{.kind = optim::NormClipKind::kParameter, .bound = 0.1});
}
BENCHMARK_DEFINE_F(WeightPasses, nesterov_clip_global_norm)(benchmark::State& state) {
  update(state, optim::NormClip{.kind = optim::NormClipKind::kGlobal, .bound = 0.1});
}
BENCHMARK_DEFINE_F(WeightPasses, nesterov_clip_global_norm_pytorch)(benchmark::State& state) {
  update(state,
         optim::NormClip{.kind = optim::NormClipKind::kGlobal, .bound = 0.1, .rule = optim::NormClipRule::kPyTorch});
}
BENCHMARK_DEFINE_F(WeightPasses, nesterov_adaptive_clip)(benchmark::State& state) {
  update(state, optim::NormClip{.kind = optim::NormClipKind::kAdaptive, .bound = 0.001});
}
// Half of each convolution's and linear layer's weights, as with 2:4 sparsity.
BENCHMARK_DEFINE_F(WeightPasses, nesterov_masks)(benchmark::State& state) {
  for (const nn::Segment& segment : set->segments()) {
    if (segment.spec.shape.size() < 2) continue;
    set->set_mask(segment.id, at::arange(segment.count).remainder(4).lt(2).view(segment.spec.shape));
  }
  update(state, std::nullopt);
}
BENCHMARK_DEFINE_F(WeightPasses, average)(benchmark::State& state) {
  optim::WeightAverage average({.decay = 0.9999}, *set);
  int64_t step = 0;
  for (auto _ : state) average.after_step(step++, false);
}
BENCHMARK_DEFINE_F(WeightPasses, look_for_nan)(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(optim::all_finite(set->gradients()));
}

#define TRAINYARD_WEIGHT_PASS(name) \
  BENCHMARK_REGISTER_F(WeightPasses, name)->Unit(benchmark::kMillisecond)->UseRealTime()
TRAINYARD_WEIGHT_PASS(nesterov);
TRAINYARD_WEIGHT_PASS(nesterov_clip_norm);
TRAINYARD_WEIGHT_PASS(nesterov_clip_global_norm);
TRAINYARD_WEIGHT_PASS(nesterov_clip_global_norm_pytorch);
TRAINYARD_WEIGHT_PASS(nesterov_adaptive_clip);
TRAINYARD_WEIGHT_PASS(nesterov_masks);
TRAINYARD_WEIGHT_PASS(average);
TRAINYARD_WEIGHT_PASS(look_for_nan);

}  // namespace
}  // namespace trainyard::train
