#include "trainyard/cli/bench_quantization.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/cli/benched_model.h"
#include "trainyard/cli/calibration_flags.h"
#include "trainyard/cli/trained_model_flags.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/pipeline/synthetic_source.h"
#include "trainyard/frontends/input/image_size.h"
#include "trainyard/frontends/model/model_metadata.h"
#include "trainyard/frontends/model/quantize_trained.h"
#include "trainyard/nn/graph/quantization.h"
#include "trainyard/train/callbacks/recording_callback.h"
#include "trainyard/train/monitors/curve_svg.h"
#include "trainyard/train/profile/layer_report.h"
#include "trainyard/train/step/forward_trainer.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kNoiseBatches = 4;
constexpr int64_t kWarmUpSteps = 2;

// Further images of the source; those of calibration where it has no more.
std::vector<at::Tensor> further_images(data::BatchSource& source, data::BatchSource& calibration) {
  std::vector<at::Tensor> images;
  for (data::BatchSource* const from : {&source, &calibration}) {
    while (std::ssize(images) < kNoiseBatches) {
      const std::vector<data::Batch> next = from->next();
      if (next.empty()) break;
      images.push_back(next.front().images());
    }
    if (!images.empty()) break;
  }
  return images;
}

train::LayerReport time_layers(const nn::QuantizedModel& model, int64_t batch_size, int64_t steps) {
  const BenchedModel benched{.device = {.gpu = false, .executor = "auto"},
                             .choices = std::make_shared<nn::KernelChoices>()};
  const train::OpenDevices devices = open_benched_device(benched);
  core::apply_thread_options({.name = "trainyard", .intra_op_threads = benched_threads(benched)});
  const nn::Size2d image = frontends::image_size_of(model.graph);
  const auto source = std::make_shared<data::SyntheticSource>(
      data::SyntheticOptions{.batch_size = batch_size, .height = image.height, .width = image.width});
  const BenchedNetwork network{.graph = model.graph, .quantization = model.quantization, .weights = model.parameters};
  train::ForwardTrainer trainer({.graph = model.graph,
                                 .devices = devices,
                                 .frozen = true,
                                 .start = [&](nn::ParameterSet& set) { start_benched(network, 0, set); },
                                 .quantization = model.quantization},
                                source);
  train::LayerReport report;
  trainer.add(std::make_shared<train::RecordingCallback>(train::RecordingOptions{
      .warmup_steps = kWarmUpSteps,
      .accelerator = devices.accelerator(),
      .record = [&](train::StepRecorder* recorder) { trainer.record(recorder); },
      .recordings = {{0, steps, [&](std::span<const train::StepRecord> records) {
                        report = train::layer_report(records, model.graph, devices.executor, {.batch = batch_size});
                      }}}}));
  trainer.train({.steps_per_epoch = kWarmUpSteps + steps});
  return report;
}

// Returns why a layer is in float.
std::string reason_of(const nn::LayerNoise& noise, const nn::Quantization& quantization) {
  if (noise.in_8_bits) return "";
  const auto found = quantization.in_float.find(noise.name);
  return found == quantization.in_float.end() ? "" : found->second;
}

nlohmann::json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

std::string decibels_text(double value) {
  if (std::isnan(value)) return "-";
  return std::isinf(value) ? "exact" : fmt::format("{:.1f}", value);
}

}  // namespace

void declare_bench_quantization_flags(core::FlagTable& table) {
  constexpr const char* kGroup = "Measuring";
  declare_trained_model_flags(table);
  declare_calibration_flags(table);
  table.integer("batch_size", 1, "images a step while layers are timed").bounds(1, 4096).group(kGroup);
  table.integer("num_batches", 10, "steps whose median is shown").bounds(1, 1 << 20).group(kGroup);
  table.text("json", std::nullopt, "write the same as JSON into this file").group(kGroup);
  table.text("output", std::nullopt, "draw the layers' signal to noise into this SVG file").group(kGroup);
}

QuantizationBenchReport bench_quantization(const core::FlagValues& values, const std::string& path) {
  frontends::TrainedModelOptions model = read_trained_model_options(values, path);
  model.precision = frontends::Precision::kAuto;
  const train::QuantizeModelOptions options = read_quantize_options(values);
  const frontends::OpenedModel opened = frontends::open_model(model);
  if (opened.has_scales) model.precision = frontends::Precision::kFloat32;  // to compare the ways to find scales
  const frontends::TrainedModel trained = frontends::load_trained_model(opened, model);
  require_quantizable(trained);
  const frontends::InputSettings input = calibration_input(values, opened, trained);
  const auto source = frontends::make_calibration_source(input);
  const nn::QuantizedModel quantized =
      train::quantize_model(frontends::model_description_of(trained), *trained.parameters, *source, options).model;
  const auto again = frontends::make_calibration_source(input);
  const std::vector<at::Tensor> images = further_images(*source, *again);
  source->stop();
  again->stop();

  QuantizationBenchReport report{.model = trained.identity.model,
                                 .method = quantized.report.trials.at(quantized.report.chosen).name,
                                 .signal_to_noise = quantized.report.trials.at(quantized.report.chosen).signal_to_noise,
                                 .batch_size = values.integer("batch_size")};
  for (const at::Tensor& batch : images) report.images += batch.size(0);
  const std::vector<nn::LayerNoise> noises = nn::layer_noise(quantized, images);
  const train::LayerReport times = time_layers(quantized, report.batch_size, values.integer("num_batches"));
  report.images_per_second = times.images_per_second();
  std::map<std::string, double> seconds;  // by the first node of what is computed together
  double sum = 0;
  for (const train::LayerRow& row : times.rows) {
    seconds[row.names.front()] += row.seconds();
    sum += row.seconds();
  }
  for (const nn::LayerNoise& noise : noises) {
    report.layers.push_back({.noise = noise,
                             .time_share = sum > 0 ? seconds[noise.name] / sum : 0,
                             .in_float = reason_of(noise, *quantized.quantization)});
  }
  return report;
}

std::string quantization_bench_text(const QuantizationBenchReport& report) {
  size_t width = 5;
  for (const QuantizedLayer& layer : report.layers) width = std::max(width, layer.noise.name.size());
  std::string text = fmt::format(
      "{} in 8 bits by {}: {} dB of the logits; {:.1f} images/s at batch {}; noise on {} images\n\n", report.model,
      report.method, decibels_text(report.signal_to_noise), report.images_per_second, report.batch_size, report.images);
  text += fmt::format("{:<{}}{:>10}{:>12}{:>8}  {}\n", "layer", width, "dB", "alone, dB", "time", "computes in");
  for (const QuantizedLayer& layer : report.layers) {
    const std::string in = layer.noise.in_8_bits    ? "8 bits"
                           : layer.in_float.empty() ? "float"
                                                    : "float: " + layer.in_float;
    text += fmt::format("{:<{}}{:>10}{:>12}{:>6.1f} %  {}\n", layer.noise.name, width,
                        decibels_text(layer.noise.signal_to_noise), decibels_text(layer.noise.own_signal_to_noise),
                        100 * layer.time_share, in);
  }
  std::vector<const QuantizedLayer*> noisiest;
  for (const QuantizedLayer& layer : report.layers) {
    if (std::isfinite(layer.noise.own_signal_to_noise)) noisiest.push_back(&layer);
  }
  if (noisiest.empty()) return text;
  const auto worst = std::min_element(noisiest.begin(), noisiest.end(), [](const auto* a, const auto* b) {
    return a->noise.own_signal_to_noise < b->noise.own_signal_to_noise;
  });
  return text + fmt::format("\nthe layer that costs most: {}, {} dB alone\n", (*worst)->noise.name,
                            decibels_text((*worst)->noise.own_signal_to_noise));
}

std::string quantization_bench_json(const QuantizationBenchReport& report) {
  nlohmann::json layers = nlohmann::json::array();
  for (const QuantizedLayer& layer : report.layers) {
    layers.push_back({{"name", layer.noise.name},
                      {"in_8_bits", layer.noise.in_8_bits},
                      {"signal_to_noise_db", finite_or_null(layer.noise.signal_to_noise)},
                      {"own_signal_to_noise_db", finite_or_null(layer.noise.own_signal_to_noise)},
                      {"time_share", layer.time_share},
                      {"in_float", layer.in_float}});
  }
  const nlohmann::json json{{"model", report.model},
                            {"method", report.method},
                            {"signal_to_noise_db", finite_or_null(report.signal_to_noise)},
                            {"images", report.images},
                            {"batch_size", report.batch_size},
                            {"images_per_second", report.images_per_second},
                            {"layers", layers}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string quantization_bench_svg(const QuantizationBenchReport& report) {
  train::CurveSeries all{.name = "with all before it"}, own{.name = "alone", .joined = false};
  train::CurveSeries times{.name = "% of the time"};
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const QuantizedLayer& layer = report.layers[i];
    const auto place = static_cast<double>(i + 1);
    for (auto [series, value] : {std::pair(&all, layer.noise.signal_to_noise),
                                 {&own, layer.noise.own_signal_to_noise},
                                 {&times, 100 * layer.time_share}}) {
      series->x.push_back(place);
      series->y.push_back(value);
    }
  }
  const std::vector<train::CurveAxis> axis = {{"layer"}};
  return train::curve_svg(report.model + " in 8 bits by " + report.method,
                          {{.title = "signal to noise, dB", .series = {all, own}, .x_axes = axis},
                           {.title = "time", .series = {times}, .x_axes = axis}});
}

}  // namespace trainyard::cli
