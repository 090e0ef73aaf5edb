// What 2:4 sparsity costs on ResNet-50's 23.4 million pruned weights: making the masks once, and writing their zeros
// after each update, compared with a copy of all values. Processor time is that of all threads.
#include <string>
#include <vector>

#include <ATen/ops/empty_like.h>
#include <benchmark/benchmark.h>

#include "trainyard/models/registry/model_registry.h"
#include "trainyard/nn/execution/executor.h"
#include "trainyard/optim/sparsity/mask_algorithm.h"
#include "trainyard/optim/sparsity/prune.h"

namespace trainyard::train {
namespace {

struct ResNet50 {
  nn::Graph graph = models::build_model("resnet50_v1.5", "imagenet", {.num_classes = 1000});
  nn::ParameterSet set;
  std::vector<optim::SparseLayer> layers = optim::sparse_layers(graph);

  ResNet50() {
    const auto declares = nn::make_executor("reference", graph, {.mode = nn::Mode::kInference, .parameters = &set});
    set.allocate();
    set.initialize(1);
  }
};

void make_masks(benchmark::State& state, optim::MaskAlgorithm algorithm) {
  const ResNet50 model;
  for (auto _ : state) {
    for (const optim::SparseLayer& layer : model.layers) {
      if (layer.treatment != optim::SparsityTreatment::kSparse) continue;
      benchmark::DoNotOptimize(optim::sparsity_mask(model.set.value(*model.set.find(layer.parameter)), algorithm));
    }
  }
}

void write_zeros_of_masks(benchmark::State& state) {
  ResNet50 model;
  optim::prune(model.set, model.layers, optim::MaskAlgorithm::kMask1d);
  for (auto _ : state) {
    for (const nn::Segment& segment : model.set.segments()) model.set.apply_mask(segment.id);
  }
}

void copy_all_values(benchmark::State& state) {
  const ResNet50 model;
  at::Tensor copy = at::empty_like(model.set.values());
  for (auto _ : state) copy.copy_(model.set.values());
}

BENCHMARK_CAPTURE(make_masks, mask_1d, optim::MaskAlgorithm::kMask1d)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(make_masks, mask_2d_greedy, optim::MaskAlgorithm::kMask2dGreedy)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime();
BENCHMARK_CAPTURE(make_masks, mask_2d_best, optim::MaskAlgorithm::kMask2dBest)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime();
BENCHMARK(write_zeros_of_masks)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();
BENCHMARK(copy_all_values)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

}  // namespace
}  // namespace trainyard::train
