// Writes the files of a training's train_dir other than checkpoints, by its dialect (docs/dialects.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainyard/frontends/tf_cnn/prepare.h"
#include "trainyard/frontends/tf_cnn/run_steps.h"
#include "trainyard/train/callbacks/progress_callbacks.h"
#include "trainyard/train/monitors/monitor.h"

namespace trainyard::frontends {

inline constexpr const char* kMetricsJson = "metrics.jsonl";
inline constexpr const char* kMetricsCsv = "metrics.csv";
inline constexpr const char* kSummary = "run_summary.json";
inline constexpr const char* kCurve = "curve.svg";

// Returns whether this process records numbers: on the chief, with a train_dir, and if the flags request it.
bool records_metrics(const PreparedRun& run);

// Makes what the numbers go to: TensorBoard, and in `trainyard train` metrics.jsonl and metrics.csv, of which rows
// after `first_step`, where the run continues, are taken out, and with `evaluates_again` those of an evaluation at that
// step. Throws kIo, kNoSpace, kCorruptData.
std::vector<std::unique_ptr<train::Monitor>> make_monitors(const PreparedRun& run, int64_t first_step,
                                                           bool evaluates_again);

// Sets the recorded steps, and their histograms and images. Returns false when no step is recorded. The run must
// outlive `summary`.
bool set_recorded_steps(const PreparedRun& run, train::SummaryOptions& summary);

// Returns whether to show the progress line (--progress); auto: if stderr is a terminal.
bool shows_progress(const PreparedRun& run);

// Draws the curves of metrics.jsonl into curve.svg; returns its path, empty when there is nothing to draw.
std::string write_curve(const PreparedRun& run);

}  // namespace trainyard::frontends
