#include "trainyard/frontends/tf_cnn/quantized_runs.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/base/memory_state.h"
#include "trainyard/frontends/model/quantize_trained.h"
#include "trainyard/nn/quantization/quantization_aware.h"
#include "trainyard/train/model/quantize_model.h"

namespace trainyard::frontends {
namespace {

train::QuantizeModelOptions calibration_options(const PreparedRun& run) {
  return {.batches = run.options.calibration_batches.value_or(kCalibrationBatches)};
}

// For weights that are not trained, whose speed alone counts: one way to quantize, and few images.
train::QuantizeModelOptions quick_options(const PreparedRun& run) {
  constexpr int64_t kImages = 64;
  const int64_t batches = std::clamp<int64_t>(kImages / run.batch_size, 1, kCalibrationBatches);
  return {.batches = run.options.calibration_batches.value_or(batches),
          .quantization = {.ranges = nn::RangeMethod::kMinMax, .method = nn::QuantizeMethod::kPlain}};
}

void log_report(const nn::QuantizationReport& report) {
  std::string text = nn::to_text(report);
  if (text.ends_with('\n')) text.pop_back();
  core::log::info("{}", text);
}

// Returns the weights that the forward passes would have in float.
std::shared_ptr<nn::ParameterSet> float_parameters(const train::ForwardOptions& options, const nn::Graph& graph) {
  auto parameters = std::make_shared<nn::ParameterSet>();
  // Which says what parameters there are.
  const auto executor = nn::make_executor(
      "auto", graph, {.mode = nn::Mode::kInference, .frozen = options.frozen, .parameters = parameters.get()});
  parameters->allocate();
  parameters->initialize(options.seed);
  if (options.start) options.start(*parameters);
  return parameters;
}

}  // namespace

void quantize_forward_passes(const PreparedRun& run, train::ForwardOptions& options) {
  if (run.input.dataset == "coco") {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "models that detect objects are not computed in 8-bit integers",
                       .where = "--trt_mode=INT8",
                       .expected = "a classifier of images",
                       .actual = run.model->name,
                       .remedy = "use --trt_mode=FP16"});
  }
  const nn::Graph graph = nn::main_output_graph(options.graph);
  const std::shared_ptr<nn::ParameterSet> parameters = float_parameters(options, graph);
  const auto images = make_source(run, data::Subset::kTrain);
  const bool trained = options.start != nullptr;
  train::QuantizedModelFile quantized =
      train::quantize_model({.name = run.model->name, .graph = graph}, *parameters, *images,
                            trained ? calibration_options(run) : quick_options(run));
  images->stop();
  log_report(quantized.model.report);
  options.graph = *quantized.description.graph;
  options.quantization = quantized.description.quantization;
  options.start = [weights = quantized.parameters](nn::ParameterSet& set) {
    core::MemoryState state;
    weights->save(state);
    set.load(state);
  };
}

void settle_evaluated_precision(PreparedRun& run, TrainedModel& trained) {
  if (run.options.precision == Precision::kInt8 && trained.quantization == nullptr) {
    if (run.device.processes != nullptr) {
      throw core::Error(core::ErrorCode::kUnsupported,
                        {.problem = "several processes do not find the scales of 8-bit integers",
                         .where = trained.checkpoint.path,
                         .remedy = "write them into a file first: trainyard quantize"});
    }
    const bool from_files = !run.synthetic() && run.own.dataset == nullptr;
    const auto images =
        from_files ? make_calibration_source(run.input) : make_source(run, data::Subset::kTrain, Share::kAll);
    log_report(quantize_trained(trained, *images, calibration_options(run)));
    images->stop();
  }
  run.quantization = trained.quantization;
  const bool of_file = run.checkpoint != nullptr && run.checkpoint->quantized;
  if (of_file || trained.quantization != nullptr) run.graph = trained.executor->graph();
}

void settle_quantization_aware_device(PreparedRun& run) {
  if (!run.options.qat) return;
  if (!run.device.accelerators.empty()) {
    throw core::Error(
        core::ErrorCode::kUnsupported,
        {.problem = "quantization-aware training computes on CPUs", .where = "--qat", .remedy = "pass --device=cpu"});
  }
  if (run.device.kernels.recomputation != nn::Recomputation::kNone) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      {.problem = "quantization-aware training recomputes no activations",
                       .where = "--qat",
                       .remedy = "leave --recompute out"});
  }
  run.device.executor = nn::kQuantizationAware;
}

void check_quantization_aware_start(const PreparedRun& run) {
  const bool trains = run.mode() == RunMode::kTraining || run.mode() == RunMode::kTrainingAndEvaluation;
  const auto refuse = [](bool holds, std::string problem, const std::string& where, std::string remedy) {
    if (!holds) return;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = std::move(problem), .where = where, .remedy = std::move(remedy)});
  };
  const std::string& origin = run.saved.origin;
  const bool continues = trains && run.saved.continues;
  refuse(continues && run.saved.has_scales && !run.options.qat,
         "the training was begun with --qat, which this command lacks", origin, "pass --qat, or another --train_dir");
  if (!run.options.qat) return;
  refuse(continues && !run.saved.has_scales, "the training was begun without --qat: its checkpoints have no scales",
         origin, "pass it as --weights, and another --train_dir");
  refuse(!continues && run.options.weights.empty(), "there are no weights to start from", "--qat",
         "train the network in float first, and pass its folder as --weights");
  if (run.input.dataset != "coco") return;
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "models that detect objects are not computed in 8-bit integers",
                     .where = "--qat",
                     .expected = "a classifier of images",
                     .actual = run.model->name});
}

std::function<void(nn::ParameterSet&)> with_training_scales(const PreparedRun& run,
                                                            std::function<void(nn::ParameterSet&)> start) {
  if (!run.options.qat || run.saved.continues || !run.device.is_chief()) return start;
  PreparedRun whole = run;
  whole.input.epoch_sizes.clear();  // scales are found with images of the model's size
  return [run = std::move(whole), start = std::move(start)](nn::ParameterSet& parameters) {
    if (start) start(parameters);
    const auto source = run.own.dataset == nullptr ? make_calibration_source(run.input)
                                                   : make_source(run, data::Subset::kTrain, Share::kAll);
    const std::vector<at::Tensor> images =
        train::take_images(*source, run.options.calibration_batches.value_or(kCalibrationBatches));
    source->stop();
    log_report(nn::find_training_scales(run.graph, parameters, images));
  };
}

}  // namespace trainyard::frontends
