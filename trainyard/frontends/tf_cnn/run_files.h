// What a training writes into its train_dir beside checkpoints, by its dialect (docs/dialects.md).
#pragma once

#include <string>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/run_steps.h"
#include "trainyard/train/callbacks/summary_callback.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::frontends {

inline constexpr const char* kMetricsJson = "metrics.jsonl";
inline constexpr const char* kMetricsCsv = "metrics.csv";
inline constexpr const char* kSummary = "run_summary.json";
inline constexpr const char* kCurve = "curve.svg";

// Returns whether numbers of this process are recorded at all: by its flags, with a train_dir, on the chief.
bool records_metrics(const PreparedRun& run);

// Adds where the numbers go: TensorBoard, and in `trainyard train` metrics.jsonl and metrics.csv, of which rows after
// `first_step`, where the run goes on, are taken out. Throws kIo, kNoSpace, kCorruptData.
void add_monitors(const PreparedRun& run, int64_t first_step, train::MonitorSet& monitors);

// Sets the steps that are recorded, and their histograms and pictures; returns false when no step is. Borrows the run.
bool set_recorded_steps(const PreparedRun& run, train::SummaryOptions& summary);

// --progress: a bar on stderr; auto where that is a terminal.
bool shows_progress(const PreparedRun& run);

// Draws the curves of metrics.jsonl into curve.svg; returns its path, empty when there is nothing to draw.
std::string write_curve(const PreparedRun& run);

}  // namespace trainyard::frontends
