#include "trainyard/recipes/tf_cnn/run_files.h"

#include <memory>

#include <fmt/format.h>

#include "trainyard/core/base/progress.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/monitors/csv_monitor.h"
#include "trainyard/train/monitors/curve_svg.h"
#include "trainyard/train/monitors/json_lines_monitor.h"
#include "trainyard/train/monitors/tensorboard_monitor.h"

namespace trainyard::recipes {

bool records_metrics(const PreparedRun& run) {
  if (run.train_dir().empty() || !run.device.is_chief() || run.options.display.summary_verbosity <= 0) {
    return false;
  }
  // Evaluations are recorded here also where steps are not.
  return run.own_dialect() || run.options.display.save_summaries_steps.value_or(0) > 0;
}

void add_monitors(const PreparedRun& run, int64_t first_step, train::MonitorSet& monitors) {
  if (!records_metrics(run)) return;
  core::FileSystem& files = core::local_file_system();
  if (run.own_dialect()) {
    const auto path = [&](const char* name) { return core::join_path(run.train_dir(), name); };
    monitors.add(std::make_unique<train::JsonLinesMonitor>(path(kMetricsJson), files, first_step));
    monitors.add(std::make_unique<train::CsvMonitor>(path(kMetricsCsv), files, first_step));
  }
  // Visible at once, and not lost with a run that is killed.
  monitors.add(std::make_unique<train::TensorBoardMonitor>(run.train_dir(), first_step, files,
                                                           formats::EventFileOptions{.flush_seconds = 0}));
}

bool set_recorded_steps(const PreparedRun& run, train::SummaryOptions& summary) {
  if (!records_metrics(run)) return false;
  summary.every_steps = run.options.display.save_summaries_steps.value_or(0);
  const int64_t verbosity = run.options.display.summary_verbosity;
  if (verbosity == 2) summary.histograms = train::SummaryHistograms::kLogGradients;
  if (verbosity >= 3) summary.histograms = train::SummaryHistograms::kAll;
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

}  // namespace trainyard::recipes
