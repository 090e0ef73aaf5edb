// Imports whole Keras models from HDF5, as keras.Model.save("F.h5") and to_keras_model() (nn/export/keras_model.h)
// write them:
//
//   const formats::Hdf5File file("resnet50.h5");
//   const KerasModel model = read_keras_model(file);
//   auto executor = make_executor("auto", model.graph, {.mode = Mode::kInference, .parameters = &set});
//   set.allocate();
//   load_keras_weights(file, model, set);
#pragma once

#include <vector>

#include "trainyard/formats/tensors/hdf5.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

struct KerasModel {
  Graph graph{};         // takes images [C, H, W]; returns logits when `softmax` is set. Nodes have the layers' names
  bool softmax = false;  // the model in the file returns probabilities
  std::vector<int> nodes{};  // nodes with weights, in the order of the file
};

// Reads the network: functional models of one input and one output, of layers that graphs support
// (docs/formats/hdf5.md). Throws kCorruptData for a file without a model, or a damaged one, and kUnsupported, which
// names the file and the layer, for unsupported layers, and for outputs and factors of channels that are the elements
// of a flattened image.
KerasModel read_keras_model(const formats::Hdf5File& file);

// Fills an allocated set, to which an executor of model.graph is bound, with the file's weights. Throws kCorruptData
// when they do not fit the network, and kUnsupported for weights of a flattened image's elements behind other layers.
void load_keras_weights(const formats::Hdf5File& file, const KerasModel& model, ParameterSet& set);

}  // namespace trainyard::nn
