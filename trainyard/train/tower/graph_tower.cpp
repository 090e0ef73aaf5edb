#include "trainyard/train/tower/graph_tower.h"

#include <utility>

#include "trainyard/nn/execution/loss.h"

namespace trainyard::train {

LossModule loss_of(LossFunction function) {
  return [function = std::move(function)](TowerContext&) -> Loss {
    return [function](const LossInput& in) { return function(in.outputs.begin()->tensor, in.batch["labels"]); };
  };
}

TowerFunction graph_tower(GraphTowerOptions options) {
  if (!options.loss) {
    options.loss = loss_of(
        [](const at::Tensor& output, const at::Tensor& labels) { return nn::softmax_cross_entropy(output, labels); });
  }
  return [options = std::move(options)](TowerContext& context) -> TowerStep {
    nn::Executor& executor = context.graph(options.graph, {.runs_whole_batch = true});
    return [&executor, loss = options.loss(context)](const TowerInput& in) -> TowerOutput {
      TowerOutput result;
      {
        const RecordedPart recorded(in.record, StepPart::kForward);
        result.outputs.set("logits", executor.forward(in.batch["images"], in.random));
      }
      const RecordedPart recorded(in.record, StepPart::kLoss);
      result.losses.set("cost", loss({.outputs = result.outputs, .batch = in.batch, .step = in}));
      return result;
    };
  };
}

}  // namespace trainyard::train
