// Where a step's time goes, layer by layer: what `trainyard bench layers` and --tfprof_file print and write
// (docs/formats/layers.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainyard/nn/execution/node_cost.h"
#include "trainyard/train/profile/step_recorder.h"

namespace trainyard::train {

// Medians over the steps, of replica 0. All that happened in a step (several kernels, micro-steps) is added up first.
// On an accelerator they are the seconds in which it ran what the layer handed over.
struct LayerTime {
  double seconds = 0;
  int64_t flops = 0, bytes = 0;  // a step: what the executor reports, else by definition and at least (nn::NodeCosts)
};

struct LayerRow {
  std::vector<int> nodes;  // ids, rising: several that the executor runs as one
  std::vector<std::string> names, kinds;
  std::vector<std::string> kernels;  // each once, in the order of their first run
  LayerTime forward, backward;

  double seconds() const { return forward.seconds + backward.seconds; }
};

// Kernels, copies and fills of one name, whatever handed them over.
struct KernelRow {
  std::string name;
  int64_t calls = 0;   // in all steps
  double seconds = 0;  // of a step, the steps' mean; what overlaps counts twice
};

struct LayerReport {
  std::string model, executor;
  // What the steps were, beside what is usual: "forward only", "bfloat16". The caller sets it.
  std::vector<std::string> conditions;
  // Whose times these are: an accelerator's name, and how it takes times. Empty for those of threads.
  std::string device, method;
  int64_t lost_records = 0;           // of what it ran: times are too small by them
  int64_t steps = 0, batch_size = 0;  // images a step
  double step_seconds = 0;
  std::vector<LayerRow> rows;                           // in the graph's order
  std::vector<std::pair<std::string, double>> outside;  // seconds of a step by what took them, beside the rows
  std::vector<KernelRow> kernels;                       // of an accelerator, the longest first

  double layer_seconds() const;
  double images_per_second() const { return step_seconds > 0 ? static_cast<double>(batch_size) / step_seconds : 0; }
};

// Makes the report of recorded steps, at least one. `cost.batch` is the images of a replica's step, over its
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

// Returns the table for people. It ends with a line break.
std::string layer_time_table(const LayerReport& report);
// Returns the table of operators, on an accelerator with a second table, of its kernels. Each has at most `rows` rows.
std::string operator_time_table(const LayerReport& report, size_t rows);
// Returns one JSON object with rows by layer and by operator, and a line break.
std::string layer_time_json(const LayerReport& report);

}  // namespace trainyard::train
