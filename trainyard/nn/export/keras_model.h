// A whole model, network and weights, as Keras saves it in HDF5 (docs/formats/hdf5.md), for keras.models.load_model:
//
//   formats::write_hdf5("resnet50.h5", to_keras_model(executor.graph(), set, {.softmax = true}));
//
// The model in the file takes images channels last, [N, H, W, C], in the normalization that it was trained with.
#pragma once

#include "trainyard/formats/tensors/hdf5.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

struct KerasModelOptions {
  bool softmax = false;  // the model gives probabilities: a layer "softmax" stands behind the main output
};

// Returns the model of the main output. Operations that are no layer of Keras become several: padding of its own stands
// in a ZeroPadding2D, "<node>_pad", stochastic depth is a Dropout of whole samples. Borrows the numbers of `set` for as
// long as the result lives; the set is allocated and has what the graph needs. Throws kUnsupported, which names the
// node, for what has no counterpart: custom layers, layers of transformers, local response normalization, pooling at
// borders that Keras counts in another way.
[[nodiscard]] formats::Hdf5Group to_keras_model(const Graph& graph, const ParameterSet& set,
                                                const KerasModelOptions& options = {});

}  // namespace trainyard::nn
