// The metadata of a model's file: its network, the meaning of its outputs, and how an image becomes its input. Stored
// as texts by name, in safetensors' __metadata__ and in checkpoints of train::fit() (docs/formats/model_metadata.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/stateful.h"
#include "trainyard/train/model/model.h"

namespace trainyard::train {

using ModelMetadata = std::map<std::string, std::string>;

// Returns the texts, without unknown ones. Throws what nn::graph_json() throws.
[[nodiscard]] ModelMetadata metadata_of(const ModelDescription& description);

// Returns the description in the texts; missing ones are as in ModelDescription{}. `where` names their file. Throws
// kCorruptData, naming the entry, for one that is malformed, kUnsupported for a graph of a later release.
[[nodiscard]] ModelDescription described_in(const ModelMetadata& metadata, const std::string& where);

// Returns the size of the images that the model takes, 0 when the texts do not say it. Throws kCorruptData.
[[nodiscard]] nn::Size2d image_size_in(const ModelMetadata& metadata, const std::string& where);

// Saves the texts as entries "description/<name>" of a checkpoint. saved_metadata() returns an empty result when there
// are none.
void save_metadata(const ModelMetadata& metadata, core::StateWriter& writer);
ModelMetadata saved_metadata(const core::StateReader& reader);

}  // namespace trainyard::train
