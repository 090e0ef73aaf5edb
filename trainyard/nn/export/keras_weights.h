// Exports a model's weights in Keras' HDF5 layout (docs/formats/hdf5.md), for keras.Model.load_weights("F.h5"): layers
// in the order of keras.Model.layers, weights in Keras' order and with its dimensions, channels last.
//
//   formats::write_hdf5("resnet50.h5", to_keras(executor.graph(), set));
//
// Keras fills the n-th layer that has weights from the n-th of the file, whatever their names. So weights of any graph
// fit a Keras model with the same layers; the models named keras/... are those of keras.applications.
#pragma once

#include <string>
#include <vector>

#include "trainyard/formats/tensors/hdf5.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns the weights in that layout. The result refers to the numbers of `set`, which must outlive it, be allocated
// and have what the graph needs. Throws kUnsupported for a custom layer and for weights behind a flattened image that
// are not those of a linear layer directly behind it, kNotFound for a set of another graph.
[[nodiscard]] formats::Hdf5Group to_keras(const Graph& graph, const ParameterSet& set);
// Returns the same for the nodes with these ids, in this order. `names` are the layers' names, by node id; empty: the
// nodes' names.
[[nodiscard]] formats::Hdf5Group to_keras(const Graph& graph, const ParameterSet& set, const std::vector<int>& nodes,
                                          const std::vector<std::string>& names = {});

// Fills the weights of the nodes with these ids, in this order, from the layers with weights in `group` of the file,
// the n-th from the n-th, as Keras does. Throws kCorruptData for other counts or shapes.
void load_keras(const Graph& graph, ParameterSet& set, const std::vector<int>& nodes, const formats::Hdf5File& file,
                const std::string& group);

// Returns the Flatten of an image of several channels and pixels whose elements are among those of the node's output,
// where Keras has them in another order: channels innermost; null: none. Linear layers end the search: their outputs
// have no places in an image.
[[nodiscard]] const Node* flatten_before(const Graph& graph, int id);

// Returns the ids of all nodes in the order of the layers in a functional Keras model: by the longest path to the
// output, farthest first; those of the same length in the order of a walk from the output, first inputs first
// (keras/src/ops/function.py, map_graph).
[[nodiscard]] std::vector<int> keras_order(const Graph& graph);
// Returns the same for layers whose inputs, by index and smaller than their own, are `inputs`.
[[nodiscard]] std::vector<int> keras_order(const std::vector<std::vector<int>>& inputs,
                                           const std::vector<int>& outputs);

}  // namespace trainyard::nn
