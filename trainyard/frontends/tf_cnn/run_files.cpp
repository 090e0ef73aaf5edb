#include "trainyard/frontends/tf_cnn/run_files.h"

#include <algorithm>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/progress.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/logs/event_file.h"
#include "trainyard/frontends/tf_cnn/flag_validation.h"
#include "trainyard/train/monitors/curve_svg.h"
#include "trainyard/train/monitors/mlflow_monitor.h"
#include "trainyard/train/monitors/monitors.h"

namespace trainyard::frontends {
namespace {

// How a number of a model's input becomes one in [0, 1], by channel.
struct Colours {
  data::Rgb scale, shift;
};

// Returns what undoes the normalization of the run's images.
Colours colours_of(const PreparedRun& run) {
  Colours colours{};
  if (run.synthetic()) return {.scale = {1 / 255.0F, 1 / 255.0F, 1 / 255.0F}, .shift = {}};  // never normalized
  const data::Normalization& made = run.input.transform.normalization;
  for (size_t c = 0; c < colours.scale.size(); ++c) {
    colours.scale[c] = 1 / (255 * made.scale[c]);
    colours.shift[c] = -made.shift[c] * colours.scale[c];
  }
  return colours;
}

// Returns what tf.summary.image makes of floats: the largest is white, and where some are negative, 0 is grey.
Colours colours_of(std::span<const float> values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const bool negative = *least < 0;
  const float reach = negative ? std::max(-*least, *most) : *most,
              scale = (negative ? 0.5F : 1) / std::max(reach, 1e-6F);
  const float shift = negative ? 0.5F : 0;
  return {.scale = {scale, scale, scale}, .shift = {shift, shift, shift}};
}

// Returns the first images of replica 0's batch as the model has seen them, [N, 3, H, W] in [0, 1]. Undefined where the
// batch has no colour images.
at::Tensor shown_images(const PreparedRun& run, const train::StepView& view) {
  constexpr int64_t kShown = 3;  // as many as tf.summary.image shows
  const at::Tensor* const images = view.replicas.empty() ? nullptr : view.replicas[0].batch.tensors.find("images");
  if (images == nullptr || images->dim() != 4 || images->size(1) != 3 || images->numel() == 0) return {};
  at::Tensor shown = images->slice(0, 0, kShown).to(at::kCPU, at::kFloat).clone(at::MemoryFormat::Contiguous);
  const std::span<float> values(shown.mutable_data_ptr<float>(), static_cast<size_t>(shown.numel()));
  // What the caller's own parts make has a scale of its own.
  const bool own = run.own.dataset != nullptr || (run.own.model != nullptr && run.synthetic());
  const Colours colours = own ? colours_of(values) : colours_of(run);
  const auto plane = static_cast<size_t>(shown.size(2) * shown.size(3));
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t channel = i / plane % 3;
    values[i] = values[i] * colours.scale[channel] + colours.shift[channel];
  }
  return shown;
}

}  // namespace

bool records_metrics(const PreparedRun& run) {
  if (run.train_dir().empty() || !run.device.is_chief() || run.options.display.summary_verbosity <= 0) {
    return false;
  }
  // Evaluations are recorded here also where steps are not.
  return run.own_dialect() || run.options.display.save_summaries_steps.value_or(0) > 0;
}

namespace {

std::unique_ptr<train::Monitor> mlflow_monitor(const PreparedRun& run, int64_t first_step, bool evaluates_again) {
  const std::string train_dir = core::without_slashes(run.train_dir());
  const std::string& asked = run.options.display.mlflow_dir;
  return std::make_unique<train::MlflowMonitor>(
      train::MlflowOptions{.store = asked.empty() ? core::join_path(core::parent_path(train_dir), "mlruns") : asked,
                           .experiment = run.dataset_label,
                           .run_name = core::base_name(train_dir),
                           .run_file = core::join_path(train_dir, "mlflow_run.txt"),
                           .params = run.options.flags.given,
                           .start_step = first_step,
                           .evaluates_again = evaluates_again});
}

}  // namespace

std::vector<std::unique_ptr<train::Monitor>> make_monitors(const PreparedRun& run, int64_t first_step,
                                                           bool evaluates_again) {
  std::vector<std::unique_ptr<train::Monitor>> monitors;
  const bool tracked = !run.options.display.trackers.empty();
  if (!records_metrics(run)) {
    if (!tracked || !run.device.is_chief()) return monitors;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = kNothingToTrack,
                       .remedy = "add --train_dir (and, with flags alone, --summary_verbosity=1 "
                                 "--save_summaries_steps=10)"});
  }
  if (tracked) monitors.push_back(mlflow_monitor(run, first_step, evaluates_again));
  core::FileSystem& files = core::local_file_system();
  if (run.own_dialect()) {
    const auto path = [&](const char* name) { return core::join_path(run.train_dir(), name); };
    monitors.push_back(
        std::make_unique<train::JsonLinesMonitor>(path(kMetricsJson), files, first_step, evaluates_again));
    monitors.push_back(std::make_unique<train::CsvMonitor>(path(kMetricsCsv), files, first_step, evaluates_again));
  }
  // Visible at once, and not lost with a run that is killed.
  monitors.push_back(std::make_unique<train::TensorBoardMonitor>(run.train_dir(), first_step, files,
                                                                 formats::EventFileOptions{.flush_seconds = 0}));
  return monitors;
}

bool set_recorded_steps(const PreparedRun& run, train::SummaryOptions& summary) {
  if (!records_metrics(run)) return false;
  summary.every_steps = run.options.display.save_summaries_steps.value_or(0);
  const int64_t verbosity = run.options.display.summary_verbosity;
  if (verbosity == 2) summary.histograms = train::SummaryHistograms::kLogGradients;
  if (verbosity >= 3) {
    summary.histograms = train::SummaryHistograms::kAll;
    summary.pictures = {{"input", [&run](const train::StepView& view) { return shown_images(run, view); }}};
  }
  if (!run.own_dialect()) return true;
  if (!run.options.display.save_summaries_steps) {
    const DisplayedSteps displayed = displayed_steps(run);
    summary.due = [displayed](int64_t step) { return displayed.shows(step); };
    return true;
  }
  if (summary.every_steps > 0) {
    summary.due = [every = summary.every_steps](int64_t step) { return step % every == 0; };
  }
  return summary.every_steps > 0;
}

bool shows_progress(const PreparedRun& run) {
  const std::string progress = run.options.display.progress;
  return progress == "on" || (progress == "auto" && core::ProgressBar::stderr_is_terminal());
}

std::string write_curve(const PreparedRun& run) {
  core::FileSystem& files = core::local_file_system();
  const std::string metrics = core::join_path(run.train_dir(), kMetricsJson);
  if (!files.exists(metrics)) return "";
  const std::string curve = train::curve_svg(fmt::format("{} on {}", run.model->name, run.dataset_label),
                                             train::curve_panels(files.read_file(metrics)));
  if (curve.empty()) return "";
  std::string path = core::join_path(run.train_dir(), kCurve);
  files.write_file_atomically(path, curve);
  return path;
}

}  // namespace trainyard::frontends
