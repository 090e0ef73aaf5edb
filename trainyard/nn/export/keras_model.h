// Exports a whole model, network and weights, in Keras' HDF5 format (docs/formats/hdf5.md), for
// keras.models.load_model:
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
  bool softmax = false;  // the model returns probabilities: a layer "softmax" follows the main output
};

// Returns the model of the main output. Operations without a single Keras layer become several: explicit padding
// becomes a ZeroPadding2D, "<node>_pad", and stochastic depth a Dropout of whole samples. The result refers to the
// numbers of `set`, which must outlive it, be allocated and have what the graph needs. Throws kUnsupported, which names
// the node, for operations without a counterpart: custom layers, layers of transformers, local response normalization,
// and pooling whose borders Keras treats differently; and for outputs and factors of channels that are a flattened
// image's elements, whose order is another one in Keras.
[[nodiscard]] formats::Hdf5Group to_keras_model(const Graph& graph, const ParameterSet& set,
                                                const KerasModelOptions& options = {});

}  // namespace trainyard::nn
