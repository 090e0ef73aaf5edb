// Weights from checkpoints of tf_cnn_benchmarks: its names and layouts of variables become those of our networks
// (docs/howto/from_tf_cnn_benchmarks.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainyard/core/base/stateful.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::train {

// Returns the file with the names and layouts of the graph's parameters, for load_weights(), when it is a checkpoint of
// TensorFlow. What a training there keeps for itself (global_step, loss scales, moments of the optimizer, copies of
// further replicas) is left out. Of another file, auxiliary classifiers are left out that the network of this name was
// published with (models::ModelInfo) and the graph lacks, and a line says so; else it stays the same.
// Throws kInvalidArgument with the variables that are missing and those that only the checkpoint has, by TensorFlow's
// names, and kUnsupported for a network whose names are not known (models/tf_cnn/variable_names.h).
[[nodiscard]] formats::TensorFile named_for_graph(const formats::TensorFile& file, const nn::Graph& graph);

// A training in tf_cnn_benchmarks as a run of ours saves it, from which `--train_dir` continues: variables, statistics,
// what the optimizer keeps, and the step. Loss scales and the order of the data start from the beginning.
//
//   CheckpointStore("run").save(state.global_step(), identity, TensorFlowTraining(file, graph));
class TensorFlowTraining : public core::Stateful {
 public:
  // Takes a file of formats::open_tensor_file() that is a checkpoint of TensorFlow. Throws what named_for_graph()
  // throws, kInvalidArgument for another file, and, with their names, when some variables have a state of an optimizer
  // and others have none.
  TensorFlowTraining(const formats::TensorFile& file, const nn::Graph& graph);

  int64_t global_step() const { return global_step_; }
  // Returns the name in optim::optimizers(): "tf_nesterov" (momentum there), "tf_rmsprop", "tf_adam", "sgd".
  const std::string& optimizer() const { return optimizer_; }

  void save(core::StateWriter& writer) const override;
  // Throws kInternal: it is for saving only.
  void load(const core::StateReader& reader) override;

 private:
  struct Entry {
    std::string name;  // as runs save it: "model/conv1.weight", "optimizer/conv1.weight.momentum"
    formats::StoredTensor stored;
  };
  formats::TensorFile file_;
  std::vector<Entry> entries_;
  std::string optimizer_;
  std::string counted_parameter_;  // the one that keeps the count of updates; empty: they are not counted
  int64_t global_step_ = 0;
};

// Copies the backbone of ssd300 from a checkpoint of TensorFlow's official ResNet-34 into `set`, whose graph is
// `graph`: the value of tf_cnn_benchmarks' --backbone_model_path, a prefix, a folder or one of the files. Returns the
// number of tensors. What else the checkpoint has is left out, as there. Throws kInvalidArgument with the variables
// that are missing or of another shape, or when the graph has no such backbone, and what open_tensor_file() throws.
int64_t load_tensorflow_backbone(const std::string& path, const nn::Graph& graph, nn::ParameterSet& set);

}  // namespace trainyard::train
