// The metadata of a model's file: its network, the meaning of its outputs, and how an image becomes its input. Stored
// as texts by name, in safetensors' __metadata__ and ONNX' metadata_props (docs/formats/model_metadata.md).
#pragma once

#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/train/model/model_description.h"

namespace trainyard::frontends {

using ModelMetadata = train::ModelMetadata;

// Returns what a file says of the model; with the graph and its scales if the model has an executor. For
// train::save_model() and train::quantize_model().
train::ModelDescription model_description_of(const TrainedModel& trained);

// Returns the texts that train::described_in() (train/model/model_description.h) reads. They include the graph if the
// model has an executor.
ModelMetadata metadata_of(const TrainedModel& trained);

}  // namespace trainyard::frontends
