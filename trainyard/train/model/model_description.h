// What a model's file says beside its weights: which network it is, what its outputs stand for, and how an image
// becomes its input. Texts by name, as safetensors' __metadata__ holds them, and as checkpoints of train::fit() do
// (docs/formats/model_metadata.md).
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
  std::string name{};  // of the network: "resnet50"
  // How an image becomes input: a name of data::transforms(). Empty: the model takes tensors, and no image files.
  std::string transform = "imagenet";
  // Of that transform; what concerns training alone is not saved. None: it is not known how images become input, so
  // that the model can be given tensors only.
  std::optional<data::TransformOptions> input = std::nullopt;
  std::string preprocessor{};          // the name in data::input_presets() that `input` began from; empty: not known
  int64_t num_classes = 0;             // outputs
  std::vector<std::string> classes{};  // their names, from `first_output` on; empty: classes have numbers only
  int64_t first_output = 0;            // of the first class; 1: output 0 is the background
  std::optional<nn::Graph> graph = std::nullopt;  // none: readers must know the network by its name

  // Returns the name of an output; empty where it has none.
  const std::string& class_name(int64_t output) const;
};

// Returns the texts, without those that are not known. Throws what nn::graph_json() throws.
[[nodiscard]] ModelMetadata metadata_of(const ModelDescription& description);

// Returns what the texts say; what they do not say is as in ModelDescription{}. `where` names their file. Throws
// kCorruptData, naming the entry, for one that is malformed, kUnsupported for a graph of a later release.
[[nodiscard]] ModelDescription described_in(const ModelMetadata& metadata, const std::string& where);

// Returns the size of the images that the model takes, 0 where the texts do not say it. Throws kCorruptData.
[[nodiscard]] nn::Size2d image_size_in(const ModelMetadata& metadata, const std::string& where);

// The texts as entries "description/<name>" of a checkpoint. saved_metadata() returns none where it has none.
void save_metadata(const ModelMetadata& metadata, core::StateWriter& writer);
ModelMetadata saved_metadata(const core::StateReader& reader);

}  // namespace trainyard::train
TRAINYARD_EXPORT_END
