// ImageNet models that train by default as torchvision's references do: torchvision's own, and those of Keras, which
// has no recipe.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "trainyard/models/registry/model_registry.h"

namespace trainyard::models {

// `learning_rate` is for a global batch of 256 and falls to a tenth each 30 epochs. `build` gets the options and
// `name`.
inline ModelInfo reference_model(const std::string& name, std::string equals,
                                 std::function<nn::Graph(const ModelOptions&, const std::string&)> build,
                                 double learning_rate, int64_t image_size) {
  return {.name = name,
          .family = DatasetFamily::kImagenet,
          .equals = std::move(equals),
          .image_size = image_size,
          .schedule = {.learning_rate = learning_rate,
                       .batch_size = 256,
                       .boundary_epochs = {30, 60},
                       .factors = {1, 0.1, 0.01}},
          .build = [name, build = std::move(build)](const ModelOptions& options) { return build(options, name); }};
}

}  // namespace trainyard::models
