// The result of a model function for train_ctl(): a network, and the regularization that Keras would collect from its
// layers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/optimizers/optimizer_options.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends {

struct CtlModel {
  // Images [3, H, W] to logits [num_classes]; a softmax is added when probabilities are needed. Checkpoints store its
  // name: `trainyard predict`, eval and export open those of registered models.
  nn::Graph graph{};
  std::vector<optim::RegularizationTerm> regularization{};  // a part of the loss
};

// Makes the model. `batch_size` is that of a device.
using CtlModelFunction = std::function<CtlModel(int64_t num_classes, int64_t batch_size)>;

// Returns a function for a registered ImageNet model, with the example's Keras l2(1e-4) (optim::keras_l2()): "resnet50"
// and "trivial" are the example's own, dali/resnet50 and dali/trivial; any other name is find_model()'s
// (models/registry/model_registry.h). Throws as build_model() does when it is called.
[[nodiscard]] CtlModelFunction ctl_zoo_model(const std::string& name, nn::Size2d image_size = 224);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
