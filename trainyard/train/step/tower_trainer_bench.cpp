// Images a second through the whole trainer, on synthetic batches, and where the time of a step goes: shares of input,
// compute, communication and update. First with the system's allocator, then with the caching one.

#include <memory>
#include <string>

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "trainyard/core/memory/cpu_allocator.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/step/tower_trainer.h"
#include "trainyard/train/testing/memory_source.h"

namespace trainyard::train {
namespace {

class TimeSum : public Callback {
 public:
  StepTimes sum;
  std::string name() const override { return "time_sum"; }
  void after_step(Trainer&, const StepView& view) override {
    sum.total += view.times.total;
    sum.input += view.times.input;
    sum.compute += view.times.compute;
    sum.communication += view.times.communication;
    sum.update += view.times.update;
  }
};

void train_resnet20(benchmark::State& state, bool caching_allocator) {
  if (caching_allocator) core::install_cpu_allocator();
  const auto replicas = static_cast<int>(state.range(0));
  const int64_t batch = 128 / replicas;
  const at::Tensor images = at::randn({128, 3, 32, 32}), labels = at::randint(10, {128}, at::kLong);
  TowerTrainer trainer(
      {.graph = models::build_model("resnet20", "cifar10", {.num_classes = 10}),
       .devices = {.replicas = replicas},
       .threads = {.intra_op_threads = 2},
       .make_optimizer =
           [](nn::ParameterSet& set) { return optim::optimizers().get("tf_nesterov")(set, {.weight_decay = 1e-4}); },
       .learning_rate = optim::constant(0.01)},
      std::make_shared<MemorySource>(images, labels, batch, replicas));
  auto times = std::make_shared<TimeSum>();
  trainer.add(times);
  trainer.train({.steps_per_epoch = 3});  // warm-up
  times->sum = {};
  constexpr int64_t kSteps = 5;
  int64_t epoch = 0;
  for (auto _ : state) {
    ++epoch;
    trainer.train({.steps_per_epoch = kSteps, .starting_epoch = epoch, .max_epoch = epoch});
  }
  state.SetItemsProcessed(state.iterations() * kSteps * 128);
  const StepTimes& sum = times->sum;
  state.counters["input"] = sum.input / sum.total;
  state.counters["compute"] = sum.compute / sum.total;
  state.counters["communication"] = sum.communication / sum.total;
  state.counters["update"] = sum.update / sum.total;
}

BENCHMARK_CAPTURE(train_resnet20, system_allocator, false)->Arg(1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(train_resnet20, caching_allocator, true)
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace trainyard::train
