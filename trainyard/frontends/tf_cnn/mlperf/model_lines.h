// Writes MLPerf's description of a ResNet: a line for each of its layers and blocks.
#pragma once

#include "trainyard/frontends/tf_cnn/mlperf/compliance_log.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::frontends {

struct ModelLinesOptions {
  bool training = true;        // batch norms use the statistics of their batch
  bool channels_last = false;  // shapes as [H, W, C] instead of [C, H, W]
};

// Writes model_hp_initial_shape, the lines of convolutions, batch norms, ReLUs, max pools, linear layers and shortcuts
// in the order of the graph's nodes, and model_hp_final_shape. Nodes whose names begin with one "layer<s>.<i>." are a
// block, within model_hp_begin_block and model_hp_end_block. Other kinds of layers have no lines.
void write_model_lines(const ComplianceLog& log, const nn::Graph& graph, const ModelLinesOptions& options);

}  // namespace trainyard::frontends
