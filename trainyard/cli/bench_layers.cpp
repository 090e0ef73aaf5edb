#include "trainyard/cli/bench_layers.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/frontends/input/synthetic_boxes.h"
#include "trainyard/models/registry/model_registry.h"
#include "trainyard/train/callbacks/recording_callback.h"
#include "trainyard/train/step/forward_trainer.h"
#include "trainyard/train/step/graph_tower.h"
#include "trainyard/train/step/tower_trainer.h"

namespace trainyard::cli {
namespace {

std::shared_ptr<data::BatchSource> synthetic_source(const nn::Graph& graph, bool detects,
                                                    const models::DatasetInfo& dataset, int64_t batch_size) {
  const nn::Size2d image = frontends::image_size_of(graph);
  if (detects) {
    return frontends::make_synthetic_boxes(
        {.height = image.height, .width = image.width, .default_boxes = graph.output_shape()[0]},
        {.batch_size = batch_size});
  }
  return std::make_shared<data::SyntheticSource>(data::SyntheticOptions{
      .batch_size = batch_size, .height = image.height, .width = image.width, .classes = dataset.benchmark_classes});
}

// Runs the warm-up and the steps; what is recorded of these.
template <typename Trainer>
train::LayerReport record(Trainer& trainer, const LayerBenchOptions& options, const train::OpenDevices& devices,
                          const nn::Graph& graph, const nn::NodeCostOptions& cost, bool quantized = false) {
  train::LayerReport report;
  trainer.add(std::make_shared<train::RecordingCallback>(
      train::RecordingOptions{.warmup_steps = options.warmup_steps,
                              .accelerator = devices.accelerator(),
                              .record = [&](train::StepRecorder* recorder) { trainer.record(recorder); },
                              .recordings = {{0, options.steps, [&](std::span<const train::StepRecord> steps) {
                                                report = train::layer_report(steps, graph, devices.executor, cost);
                                              }}}}));
  trainer.train({.steps_per_epoch = options.warmup_steps + options.steps});
  if (options.benched.image_size != nn::Size2d(0)) {
    report.conditions.push_back("images of " + models::image_size_text(options.benched.image_size));
  }
  if (const std::string dtype = benched_dtype_text(devices, quantized); !dtype.empty())
    report.conditions.push_back(dtype);
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
  const bool inference = options.benched.precision != frontends::Precision::kAuto || !options.benched.weights.empty();
  if (inference && !options.frozen) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "--precision and --weights are of inference with constant weights",
                       .remedy = "pass --forward_only and --freeze_when_forward_only, too"});
  }
  constexpr uint64_t kSeed = 1234;
  BenchedModel benched = options.benched;
  BenchedNetwork network;
  if (inference) {
    network = build_benched_network(benched, kSeed);
  } else {
    network.graph = build_benched_model(benched);
  }
  const nn::Graph& graph = network.graph;
  const std::string dataset = benched_dataset(benched);
  const models::ModelInfo& model = models::find_model(benched.model, dataset);
  const int64_t batch_size = options.batch_size > 0 ? options.batch_size : model.default_batch_size;
  const bool detects = model.task == models::Task::kDetection;
  const auto source = synthetic_source(graph, detects, models::find_dataset(dataset), batch_size);
  const train::OpenDevices devices = open_benched_device(benched);
  const nn::AcceleratorScope on_device = devices.use();
  const nn::NodeCostOptions cost{.batch = batch_size,
                                 .activation_bytes = static_cast<int64_t>(c10::elementSize(devices.dtype))};
  const int threads = benched_threads(benched);
  if (options.forward_only) {
    core::apply_thread_options({.name = "trainyard", .intra_op_threads = threads});
    train::ForwardOptions forward{
        .graph = graph, .devices = devices, .frozen = options.frozen, .quantization = network.quantization};
    if (network.weights != nullptr) {
      forward.start = [&](nn::ParameterSet& parameters) { start_benched(network, kSeed, parameters); };
    }
    train::ForwardTrainer trainer(std::move(forward), source);
    return record(trainer, options, devices, graph, cost, network.quantization != nullptr);
  }
  train::TowerTrainerOptions training;
  training.graph = graph;
  if (detects) training.loss = train::detection_loss();
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
