// What a model's file says of itself beside its weights: which network it is, what its outputs stand for, and how an
// image becomes its input. Texts by name, as safetensors' __metadata__ and ONNX' metadata_props hold them
// (docs/formats/model_metadata.md).
#pragma once

#include <map>
#include <string>

#include "trainyard/core/base/export.h"
#include "trainyard/recipes/shared/class_names.h"
#include "trainyard/recipes/shared/trained_model.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::recipes {

using ModelMetadata = std::map<std::string, std::string>;

ModelMetadata metadata_of(const TrainedModel& trained);

// The parts of metadata that metadata_of() made; empty or unchanged where it holds none. Throw kCorruptData, naming the
// entry, for one that is malformed.
train::CheckpointIdentity identity_in(const ModelMetadata& metadata, const std::string& path);
ClassNames classes_in(const ModelMetadata& metadata, const std::string& path);
void read_input(const ModelMetadata& metadata, const std::string& path, data::TransformOptions& input);
// Returns 0 where the metadata do not say it. read_input() leaves the size of the images as it is.
nn::Size2d image_size_in(const ModelMetadata& metadata, const std::string& path);

}  // namespace trainyard::recipes
TRAINYARD_EXPORT_END
