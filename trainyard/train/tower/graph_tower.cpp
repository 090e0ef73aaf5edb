#include "trainyard/train/tower/graph_tower.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainyard/nn/execution/loss.h"

namespace trainyard::train {

namespace {

core::NamedTensors taken_from(const core::NamedTensors& batch, const std::vector<std::string>& names) {
  core::NamedTensors taken;
  for (const std::string& name : names) taken.set(name, batch[name]);
  return taken;
}

}  // namespace

LossModule loss_of(LossFunction function) {
  return [function = std::move(function)](TowerContext&) -> Loss {
    return [function](const LossInput& in) {
      at::Tensor sum;
      size_t place = 0;
      for (const auto& [name, output] : in.outputs) {
        const double weight = in.weights[place++];
        const at::Tensor loss = function(output, in.batch["labels"]);
        const at::Tensor term = weight == 1.0 ? loss : loss.mul(weight);
        sum = sum.defined() ? sum.add(term) : term;
      }
      return sum;
    };
  };
}

TowerFunction graph_tower(GraphTowerOptions options) {
  if (!options.loss) {
    options.loss = loss_of(
        [](const at::Tensor& output, const at::Tensor& labels) { return nn::softmax_cross_entropy(output, labels); });
  }
  return [options = std::move(options)](TowerContext& context) -> TowerStep {
    const nn::Graph graph = context.training() ? options.graph : nn::main_output_graph(options.graph);
    nn::Executor& executor = context.graph(graph, {.runs_whole_batch = true});
    std::vector<std::string> inputs;
    for (const int id : graph.inputs())
      inputs.push_back(std::get<nn::Input>(graph.nodes[static_cast<size_t>(id)].op).name);
    std::vector<double> weights;
    for (const nn::GraphOutput& output : graph.outputs) weights.push_back(weights.empty() ? 1.0 : output.loss_weight);
    if (!context.training()) {
      return [&executor, inputs](const TowerInput& in) -> TowerOutput {
        return {.losses = {}, .outputs = executor.run(taken_from(in.batch, inputs), in.random)};
      };
    }
    return [&executor, inputs, weights, loss = options.loss(context)](const TowerInput& in) -> TowerOutput {
      TowerOutput result;
      {
        const RecordedPart recorded(in.record, StepPart::kForward);
        result.outputs = executor.run(taken_from(in.batch, inputs), in.random);
      }
      const RecordedPart recorded(in.record, StepPart::kLoss);
      result.losses.set("cost", loss({.outputs = result.outputs, .weights = weights, .batch = in.batch, .step = in}));
      return result;
    };
  };
}

}  // namespace trainyard::train
