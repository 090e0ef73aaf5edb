#include "trainyard/recipes/run_files.h"

#include <memory>

#include <fmt/format.h>

#include "trainyard/core/base/progress.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/train/monitors/csv_monitor.h"
#include "trainyard/train/monitors/curve_svg.h"
#include "trainyard/train/monitors/json_lines_monitor.h"
#include "trainyard/train/monitors/tensorboard_monitor.h"

namespace trainyard::recipes {

bool records_metrics(const core::FlagValues& values, const BenchmarkSettings& settings) {
  if (settings.train_dir.empty() || !settings.device.is_chief() || values.integer("summary_verbosity") <= 0) {
    return false;
  }
  // Evaluations are recorded here also where steps are not.
  return settings.dialect == Dialect::kTrainyard || values.integer("save_summaries_steps") > 0;
}

void add_monitors(const core::FlagValues& values, const BenchmarkSettings& settings, int64_t first_step,
                  train::MonitorSet& monitors) {
  if (!records_metrics(values, settings)) return;
  core::FileSystem& files = core::local_file_system();
  if (settings.dialect == Dialect::kTrainyard) {
    const auto path = [&](const char* name) { return core::join_path(settings.train_dir, name); };
    monitors.add(std::make_unique<train::JsonLinesMonitor>(path(kMetricsJson), files, first_step));
    monitors.add(std::make_unique<train::CsvMonitor>(path(kMetricsCsv), files, first_step));
  }
  // Visible at once, and not lost with a run that is killed.
  monitors.add(std::make_unique<train::TensorBoardMonitor>(settings.train_dir, first_step, files,
                                                           formats::EventFileOptions{.flush_seconds = 0}));
}

bool set_recorded_steps(const core::FlagValues& values, const BenchmarkSettings& settings,
                        train::SummaryOptions& summary) {
  if (!records_metrics(values, settings)) return false;
  summary.every_steps = values.integer("save_summaries_steps");
  if (settings.dialect == Dialect::kTfCnnBenchmarks) return true;
  if (!values.given("save_summaries_steps")) {
    const train::DisplayedSteps displayed = displayed_steps(values, settings);
    summary.due = [displayed](int64_t step) { return displayed.shows(step); };
    return true;
  }
  if (summary.every_steps > 0) {
    summary.due = [every = summary.every_steps](int64_t step) { return step % every == 0; };
  }
  return summary.every_steps > 0;
}

bool shows_progress(const core::FlagValues& values) {
  const std::string progress = values.text("progress");
  return progress == "on" || (progress == "auto" && core::ProgressBar::stderr_is_terminal());
}

std::string write_curve(const BenchmarkSettings& settings) {
  core::FileSystem& files = core::local_file_system();
  const std::string metrics = core::join_path(settings.train_dir, kMetricsJson);
  if (!files.exists(metrics)) return "";
  const std::string curve = train::curve_svg(fmt::format("{} on {}", settings.model->name, settings.dataset_label),
                                             train::curve_panels(files.read_file(metrics)));
  if (curve.empty()) return "";
  const std::string path = core::join_path(settings.train_dir, kCurve);
  files.write_file_atomically(path, curve);
  return path;
}

}  // namespace trainyard::recipes
