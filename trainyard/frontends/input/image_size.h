// Checks whether weights that were trained on images of one size can be used on images of another.
#pragma once

#include <string>

#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/checkpoint/checkpoint.h"

namespace trainyard::frontends {

// Returns the size of the images of a graph. Throws kUnsupported for a graph that takes something else.
nn::Size2d image_size_of(const nn::Graph& graph);

// Weights of a checkpoint, and the graph that will use them.
struct ResizedModel {
  const train::CheckpointIdentity& identity;  // of the checkpoint: model, data set, classes
  nn::Size2d saved;                           // the size of its images; 0: the model's own
  const nn::Graph& graph;
  std::string where;  // names the checkpoint in errors
  bool interpolates_positions =
      true;            // position embeddings are interpolated for the size; false: they must have the saved size
  std::string remedy;  // remedy in addition to the right --image_size; empty: none
};
// Returns the size of the checkpoint's images. Throws kInvalidArgument, naming both sizes and the first parameter whose
// shape depends on them, when the weights do not fit the graph's images.
nn::Size2d check_image_size(const ResizedModel& model);

}  // namespace trainyard::frontends
