// How images become input for published weights whose files do not say it: torchvision's and timm's
// (docs/howto/exchange_weights.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/data/augment/transform.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends {

struct PublishedInput {
  data::TransformOptions input{};  // of evaluation, including its size
  std::string preprocessor{};      // name in data::input_presets() of the corresponding training images
  std::string choice{};            // description of the choice, for messages
};

// The content of timm's config.json in the folder of a file of weights.
struct TimmConfig {
  std::string path{};   // path of config.json
  std::string model{};  // name of our model with timm's parameters; empty: none
  int64_t num_classes = 0;
  PublishedInput input{};
};

// Reads config.json of the folder of `weights_path`. Returns nothing when there is none, or when it lacks timm's
// "pretrained_cfg". Throws kCorruptData, naming the file and the member, for one that is malformed.
[[nodiscard]] std::optional<TimmConfig> read_timm_config(const std::string& weights_path);

// Returns torchvision's input for its weights of `model`: the `transforms()` of the weights with the file's name, or of
// IMAGENET1K_V1 when torchvision has no weights of that name. Returns nothing for a model that is not torchvision's.
[[nodiscard]] std::optional<PublishedInput> torchvision_input(const std::string& weights_path,
                                                              const models::ModelInfo& model);

}  // namespace trainyard::frontends
