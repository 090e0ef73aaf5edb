// Weights from checkpoints of tf_cnn_benchmarks: its names and layouts of variables become those of our networks
// (docs/howto/from_tf_cnn_benchmarks.md).
#pragma once

#include <string>

#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {

// Returns the file with the names and layouts of the graph's parameters, for load_weights(), when it is a checkpoint of
// TensorFlow, and the same file otherwise. What a training there keeps for itself (global_step, loss scales, moments of
// the optimizer, copies of further replicas) is left out.
// Throws kInvalidArgument with the variables that are missing and those that only the checkpoint has, by TensorFlow's
// names, and kUnsupported for a network whose names are not known (models/tf_cnn/variable_names.h).
[[nodiscard]] formats::TensorFile named_for_graph(const formats::TensorFile& file, const nn::Graph& graph);

// Copies the backbone of ssd300 from a checkpoint of TensorFlow's official ResNet-34 into `set`, whose graph is
// `graph`: the value of tf_cnn_benchmarks' --backbone_model_path, a prefix, a folder or one of the files. Returns the
// number of tensors. What else the checkpoint has is left out, as there. Throws kInvalidArgument with the variables
// that are missing or of another shape, or when the graph has no such backbone, and what open_tensor_file() throws.
int64_t load_tensorflow_backbone(const std::string& path, const nn::Graph& graph, nn::ParameterSet& set);

}  // namespace trainyard::train
