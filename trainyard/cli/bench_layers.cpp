#include "trainyard/cli/bench_layers.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/callbacks/recording_callback.h"
#include "trainyard/train/devices/open_devices.h"
#include "trainyard/train/step/forward_trainer.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::cli {
namespace {

std::string dataset_of(const LayerBenchOptions& options) {
  if (!options.dataset.empty()) return options.dataset;
  const auto imagenet = models::model_names(models::DatasetFamily::kImagenet);
  return std::find(imagenet.begin(), imagenet.end(), options.model) != imagenet.end() ? "imagenet" : "cifar10";
}

train::OpenDevices open(const LayerBenchOptions& options) {
  const frontends::DeviceOptions& asked = options.device;
  const bool gpu = asked.gpu.value_or(train::gpu_count() > 0);
  train::OpenDevices devices = train::open_devices(gpu ? std::vector<int>{0} : std::vector<int>{});
  devices.make_communicators = nullptr;  // a single replica exchanges nothing
  devices.make_gradient_communicators = nullptr;
  devices.dtype = asked.use_bf16 ? at::kBFloat16 : asked.use_fp16 ? at::kHalf : at::kFloat;
  if (devices.dtype == at::kHalf && !gpu) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "half precision needs a GPU", .remedy = "use bfloat16 or float on the CPU"});
  }
  devices.executor = asked.executor == "auto" ? nn::fastest_executor(devices.device(), devices.dtype) : asked.executor;
  const frontends::RewriterConfig switches = frontends::settle_switches(asked.switches);
  for (const std::string& warning : switches.warnings) core::log::warning("{}", warning);
  devices.kernels = {.recomputation = switches.recomputation.value_or(nn::Recomputation::kNone),
                     .fusions = switches.fusions,
                     .choices = options.choices};
  return devices;
}

// Runs the warm-up and the steps; what is recorded of these.
template <typename Trainer>
train::LayerReport record(Trainer& trainer, const LayerBenchOptions& options, const train::OpenDevices& devices,
                          const nn::Graph& graph, const nn::NodeCostOptions& cost) {
  train::LayerReport report;
  trainer.add(std::make_shared<train::RecordingCallback>(
      train::RecordingOptions{.warmup_steps = options.warmup_steps,
                              .accelerator = devices.accelerator(),
                              .record = [&](train::StepRecorder* recorder) { trainer.record(recorder); },
                              .recordings = {{0, options.steps, [&](std::span<const train::StepRecord> steps) {
                                                report = train::layer_report(steps, graph, devices.executor, cost);
                                              }}}}));
  trainer.train({.steps_per_epoch = options.warmup_steps + options.steps});
  if (options.image_size != nn::Size2d(0)) {
    report.conditions.push_back("images of " + models::image_size_text(options.image_size));
  }
  if (devices.dtype == at::kBFloat16) report.conditions.emplace_back("bfloat16");
  if (devices.dtype == at::kHalf) report.conditions.emplace_back("float16");
  if (options.forward_only) report.conditions.emplace_back(options.frozen ? "forward only, frozen" : "forward only");
  return report;
}

}  // namespace

train::LayerReport bench_layers(const LayerBenchOptions& options) {
  if (options.steps < 1 || options.warmup_steps < 0) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "layers cannot be timed over these steps",
                       .expected = "at least one step, and no negative warm-up",
                       .actual = fmt::format("{} steps, {} for the warm-up", options.steps, options.warmup_steps)});
  }
  if (options.frozen && !options.forward_only) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "layers are frozen in inference only", .remedy = "pass --forward_only, too"});
  }
  const std::string dataset = dataset_of(options);
  const models::ModelInfo& model = models::find_model(options.model, dataset);
  const int64_t classes = models::find_dataset(dataset).benchmark_classes;
  nn::Graph graph =
      models::build_model(options.model, dataset, {.num_classes = classes, .image_size = options.image_size});
  const nn::Size2d image = frontends::image_size_of(graph);
  const int64_t batch_size = options.batch_size > 0 ? options.batch_size : model.default_batch_size;
  const auto source = std::make_shared<data::SyntheticSource>(data::SyntheticOptions{
      .batch_size = batch_size, .height = image.height, .width = image.width, .classes = classes});
  const train::OpenDevices devices = open(options);
  const nn::AcceleratorScope on_device = devices.use();
  const nn::NodeCostOptions cost{.batch = batch_size,
                                 .activation_bytes = static_cast<int64_t>(c10::elementSize(devices.dtype))};
  const int threads = options.intra_op_threads > 0 ? options.intra_op_threads : core::available_cores();
  if (options.forward_only) {
    core::apply_thread_options({.name = "trainyard", .intra_op_threads = threads});
    train::ForwardTrainer trainer({.graph = graph, .devices = devices, .frozen = options.frozen}, source);
    return record(trainer, options, devices, graph, cost);
  }
  train::TowerTrainerOptions training;
  training.graph = graph;
  training.devices = devices;
  training.threads.intra_op_threads = threads;
  training.make_optimizer = [](nn::ParameterSet& parameters) {
    return optim::optimizers().get("tf_nesterov")(parameters, {});
  };
  training.learning_rate = optim::constant(0);  // the same numbers at every step, and none that overflows
  train::TowerTrainer trainer(training, source);
  return record(trainer, options, devices, graph, cost);
}

}  // namespace trainyard::cli
