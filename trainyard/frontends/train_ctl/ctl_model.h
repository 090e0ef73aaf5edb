// What a model function gives to train_ctl(): a network, and the regularization that Keras would find in its layers.
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
  // Images [3, H, W] to logits [num_classes]; a softmax follows where probabilities are wanted. Its name is that of the
  // checkpoints: `trainyard predict`, eval and export open those of a name that the zoo has.
  nn::Graph graph{};
  std::vector<optim::RegularizationTerm> regularization{};  // a part of the loss
};

// batch_size: a device's.
using CtlModelFunction = std::function<CtlModel(int64_t num_classes, int64_t batch_size)>;

// Returns a model of the zoo for ImageNet, with Keras' l2(1e-4) as the example has it (optim::keras_l2()): "resnet50"
// and "trivial" are the example's own, dali/resnet50 and dali/trivial; any other name is find_model()'s
// (models/registry/model_registry.h). Throws as build_model() does when it is called.
[[nodiscard]] CtlModelFunction ctl_zoo_model(const std::string& name, nn::Size2d image_size = 224);

}  // namespace trainyard::frontends
TRAINYARD_EXPORT_END
