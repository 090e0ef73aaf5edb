#include "trainyard/train/step/graph_tower.h"

#include <string>
#include <utility>
#include <vector>

#include "trainyard/train/profile/step_recorder.h"
#include "trainyard/train/step/graph_inputs.h"

namespace trainyard::train {

at::Tensor weighted_sum(const LossInput& in, const std::function<at::Tensor(const at::Tensor&)>& loss) {
  at::Tensor sum;
  size_t place = 0;
  for (const auto& [name, output] : in.outputs) {
    const double weight = in.weights[place++];
    const at::Tensor of_output = loss(output);
    const at::Tensor term = weight == 1.0 ? of_output : of_output.mul(weight);
    sum = sum.defined() ? sum.add(term) : term;
  }
  return sum;
}

LossModule loss_of(LossFunction function) {
  return [function = std::move(function)](TowerContext&) -> Loss {
    return [function](const LossInput& in) {
      return weighted_sum(in, [&](const at::Tensor& output) { return function(output, in.batch["labels"]); });
    };
  };
}

TowerFunction graph_tower(GraphTowerOptions options) {
  if (!options.loss) options.loss = classifier_loss();
  return [options = std::move(options)](TowerContext& context) -> TowerStep {
    const nn::Graph graph = context.training() ? options.graph : nn::main_output_graph(options.graph);
    TowerGraphOptions graph_options{.runs_whole_batch = true};
    if (context.training()) graph_options.other_sizes = options.other_sizes;
    nn::Executor& executor = context.graph(graph, graph_options);
    const std::vector<std::string> inputs = input_names(graph);
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
