// The metadata of a model's file: its network, the meaning of its outputs, and how an image becomes its input. Stored
// as texts by name, in safetensors' __metadata__ and in checkpoints of train::fit() (docs/formats/model_metadata.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/core/base/stateful.h"
#include "trainyard/data/augment/transform.h"
#include "trainyard/nn/graph/graph.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::train {

using ModelMetadata = std::map<std::string, std::string>;

struct ModelDescription {
  std::string name{};  // name of the network: "resnet50"
  // How an image becomes input: a name of data::transforms(). Empty: the model takes tensors, and no image files.
  std::string transform = "imagenet";
  // Options of that transform, as far as an evaluation uses them. Unset: it is not known how images become input, so
  // the model takes tensors only.
  std::optional<data::TransformOptions> input = std::nullopt;
  std::string preprocessor{};          // name in data::input_presets() that `input` is derived from; empty: not known
  int64_t num_classes = 0;             // outputs
  std::vector<std::string> classes{};  // class names, from `first_output` on; empty: classes have numbers only
  int64_t first_output = 0;            // output of the first class; 1: output 0 is the background
  std::optional<nn::Graph> graph = std::nullopt;  // unset: readers must know the network by its name

  // Returns the name of an output, or an empty text.
  const std::string& class_name(int64_t output) const;
};

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
TRAINYARD_EXPORT_END
