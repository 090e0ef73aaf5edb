// Makes models and losses of the callback loop from graphs, torch::nn modules and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/frontends/callback_loop/callbacks.h"
#include "trainyard/nn/graph/custom_layer.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/train/step/tower.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::frontends::callback_loop {

struct GraphModelOptions {
  std::string prefix{};  // prefix of all names of parameters: "generator/"
  // The regularization is this times the sum of the squares of all parameters whose spec decays, as in Keras' l2.
  double l2 = 0;
};

// Returns a model that runs the graph: one input [N, C, H, W], one output, the logits.
[[nodiscard]] Model graph_model(train::TowerContext& context, const nn::Graph& graph,
                                const GraphModelOptions& options = {});

struct ModuleShapes {
  int64_t channels = 3, height = 0, width = 0;  // of one sample of the input
  std::vector<int64_t> output{};                // of one sample's
};

// Returns a model that runs a torch::nn module: make() returns std::shared_ptr<M>, a new module each time, and
// M::forward takes and returns one tensor. Its parameters are called "module.<name>".
template <typename Make>
Model module_model(train::TowerContext& context, Make make, const ModuleShapes& shapes,
                   const GraphModelOptions& options = {}) {
  nn::GraphBuilder builder({.image = {shapes.channels, shapes.height, shapes.width}, .name = "module"});
  const auto module = builder.foreign("module", builder.input(), nn::foreign_op(make, shapes.output, "module"));
  return graph_model(context, builder.build(module), options);
}

// Returns a loss without parameters: a function of the first two of its arguments, the output and the target.
[[nodiscard]] Loss loss_of(std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> function);

}  // namespace trainyard::frontends::callback_loop
TRAINYARD_EXPORT_END
