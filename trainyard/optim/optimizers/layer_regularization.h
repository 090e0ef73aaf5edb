// Regularization as layers have it in Keras: terms that are attached to the parameters of single layers.
//
//   optim::OptimizerOptions options{.numbers = {{"momentum", 0.9}}};
//   optim::set_regularization(optim::keras_l2(graph, 1e-4), graph, options);
#pragma once

#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/optim/optimizers/optimizer_options.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

// Returns Keras' l2(coefficient), coefficient * sum(w^2), on the kernel of each convolution and on the kernel and the
// bias of each linear layer, as kernel_regularizer and bias_regularizer of TensorFlow's official ResNets attach it.
[[nodiscard]] std::vector<RegularizationTerm> keras_l2(const nn::Graph& graph, double coefficient);

// Replaces the regularization of the options by `terms`. When they are a single l2 of exactly the parameters with
// weight decay, sets weight_decay instead, which all devices support; the results are the same.
void set_regularization(const std::vector<RegularizationTerm>& terms, const nn::Graph& graph,
                        OptimizerOptions& options);

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
