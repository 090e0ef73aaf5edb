// How images become input of weights that other libraries publish, whose files say nothing of it: torchvision's and
// timm's (docs/howto/exchange_weights.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainyard/data/augment/transform.h"
#include "trainyard/models/registry/model_registry.h"

namespace trainyard::frontends {

struct PublishedInput {
  data::TransformOptions input{};  // of evaluation, and its size
  std::string preprocessor{};      // the name in data::input_presets() whose training images go with it
  std::string choice{};            // what was chosen, for people
};

// What timm's config.json in the folder of a file of weights says.
struct TimmConfig {
  std::string path{};   // of config.json
  std::string model{};  // the name of a model here that has timm's parameters; empty: there is none
  int64_t num_classes = 0;
  PublishedInput input{};
};

// Reads config.json of the folder of `weights_path`. Returns nothing where there is none, or one without timm's
// "pretrained_cfg". Throws kCorruptData, naming the file and the member, for one that is malformed.
[[nodiscard]] std::optional<TimmConfig> read_timm_config(const std::string& weights_path);

// Returns how torchvision makes images for its weights of `model`: as its weights' `transforms()` of the name that the
// file has, or of IMAGENET1K_V1 where the name is not one of torchvision's. Returns nothing for a model that is not
// torchvision's.
[[nodiscard]] std::optional<PublishedInput> torchvision_input(const std::string& weights_path,
                                                              const models::ModelInfo& model);

}  // namespace trainyard::frontends
