// What a model's file says of itself beside its weights: which network it is, what its outputs stand for, and how an
// image becomes its input. Texts by name, as safetensors' __metadata__ and ONNX' metadata_props hold them
// (docs/formats/model_metadata.md).
#pragma once

#include "trainyard/frontends/model/trained_model.h"
#include "trainyard/train/model/model_description.h"

namespace trainyard::frontends {

using ModelMetadata = train::ModelMetadata;

// Returns what train::described_in() (train/model/model_description.h) reads. The graph is in it where the model has an
// executor.
ModelMetadata metadata_of(const TrainedModel& trained);

}  // namespace trainyard::frontends
