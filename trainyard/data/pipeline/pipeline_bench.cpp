// Images a second out of the input pipeline, by data set and number of threads: read, decode, augment, batch.
#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/core/testing/test_data.h"
#include "trainyard/data/cache/cached_dataset.h"
#include "trainyard/data/datasets/shapes.h"
#include "trainyard/data/pipeline/pipeline.h"

namespace trainyard::data {
namespace {

void run(benchmark::State& state, const std::string& name, const std::string& directory, int64_t side, int64_t batch) {
  DatasetOptions options;  // gcc 12 warns falsely of a temporary
  options.directory = directory;
  const auto dataset = std::make_shared<CachedDataset>(datasets().get(name)(options), default_record_cache_bytes());
  std::shared_ptr<Transform> transform = transforms().get(name)({.height = side, .width = side});
  Pipeline pipeline(
      dataset, transform,
      {.batch_size = batch, .height = side, .width = side, .worker_threads = static_cast<int>(state.range(0))});
  pipeline.next();
  for (auto _ : state) benchmark::DoNotOptimize(pipeline.next());
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * batch);
}

void shared(benchmark::State& state, const std::string& name, const std::string& folder, int64_t side, int64_t batch) {
  const auto path = core::shared_data(folder);
  if (!path) return state.SkipWithError(core::missing_shared_data(folder).c_str());
  run(state, name, *path, side, batch);
}

void imagenet(benchmark::State& state) {
  shared(state, "imagenet", "imagenet_sample", 224, 16);
}
void coco(benchmark::State& state) {
  shared(state, "coco", "coco_tiny", 300, 8);
}
void cifar10(benchmark::State& state) {
  shared(state, "cifar10", "cifar10", 32, 128);
}
void shapes(benchmark::State& state) {
  core::TempDir temp;
  write_shapes({.train_count = 2000, .validation_count = 1}, temp.file("shapes"));
  run(state, "shapes", temp.file("shapes"), 32, 128);
}

BENCHMARK(imagenet)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(coco)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(cifar10)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(shapes)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace trainyard::data
