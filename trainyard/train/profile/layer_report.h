// Reports a step's time layer by layer, for `trainyard bench layers` and --tfprof_file (docs/formats/layers.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/nn/execution/node_cost.h"
#include "trainyard/train/profile/step_recorder.h"

namespace trainyard::train {

// Medians over the steps, of replica 0. Times within a step (several kernels, micro-steps) are added up first. On an
// accelerator they are the seconds in which it ran the layer's work.
struct LayerTime {
  double seconds = 0;
  int64_t flops = 0, bytes = 0;  // per step: as the executor reports, else the minimum by definition (nn::NodeCosts)
};

struct LayerRow {
  std::vector<int> nodes;  // ascending ids: several when the executor fuses nodes
  std::vector<std::string> names, kinds;
  std::vector<std::string> kernels;  // each once, in the order of their first run
  LayerTime forward, backward;

  double seconds() const { return forward.seconds + backward.seconds; }
};

// All kernels, copies and fills of one name.
struct KernelRow {
  std::string name;
  int64_t calls = 0;   // in all steps
  double seconds = 0;  // per step, the mean over steps; overlaps count twice
};

struct LayerReport {
  std::string model, executor;
  // Unusual conditions of the steps: "forward only", "bfloat16". The caller sets it.
  std::vector<std::string> conditions;
  // Source of the times: an accelerator's name, and its method of measuring. Empty for times of threads.
  std::string device, method;
  int64_t lost_records = 0;           // lost records of its work: times are too small
  int64_t steps = 0, batch_size = 0;  // images a step
  nn::Size2d image_size = 0;          // pixels of the graph's images; 0: its input is no image
  double step_seconds = 0;
  std::vector<LayerRow> rows;                           // in the graph's order
  std::vector<std::pair<std::string, double>> outside;  // seconds of a step outside of the rows, by cause
  std::vector<KernelRow> kernels;                       // kernels of an accelerator, the longest first

  double images_per_second() const { return step_seconds > 0 ? static_cast<double>(batch_size) / step_seconds : 0; }
};

// Makes the report of recorded steps, at least one. `cost.batch` is the number of images in a replica's step, over its
// micro-steps.
LayerReport layer_report(std::span<const StepRecord> steps, const nn::Graph& graph, const std::string& executor,
                         const nn::NodeCostOptions& cost);

// Layers of one kind together, the longest first.
struct OperatorRow {
  std::string kind;  // "convolution", "convolution + batch_norm" for layers that run as one
  int64_t layers = 0;
  LayerTime forward, backward;
};
std::vector<OperatorRow> operator_rows(const LayerReport& report);

// Returns the table as text, with a final line break.
std::string layer_time_table(const LayerReport& report);
// Returns the table of operators, and on an accelerator a second table of its kernels. Each has at most `rows` rows.
std::string operator_time_table(const LayerReport& report, size_t rows);
// Returns one JSON object with rows by layer and by operator, and a line break.
std::string layer_time_json(const LayerReport& report);

}  // namespace trainyard::train
