#include "trainyard/train/step/non_finite_search.h"

#include <algorithm>
#include <variant>

#include <fmt/format.h>

#include "trainyard/optim/step/finite.h"

namespace trainyard::train {

void NonFiniteSearch::made(const nn::NodeRun& run, std::span<const at::Tensor> values) {
  // Neither the images nor a change of layout are a layer's work: the layer that reads them shows what is in them.
  const bool forward = run.phase == nn::NodeRun::Phase::kForward;
  const bool no_layer =
      run.nodes.empty() || std::holds_alternative<nn::Input>(graph_->nodes[static_cast<size_t>(run.nodes[0])].op);
  if (found_ || (forward && no_layer)) return;
  const std::string what = kind(run, values);
  if (what.empty()) return;
  if (run.nodes.empty()) {
    found_ = fmt::format("a {} ({})", run.kernel, what);
  } else if (forward) {
    found_ = fmt::format("the output of {} ({})", layers(run.nodes), what);
  } else {
    found_ = fmt::format("a gradient that the backward of {} made ({})", layers(run.nodes), what);
  }
}

std::string NonFiniteSearch::layers(std::span<const int> nodes) const {
  std::string names;
  for (const int id : nodes) {
    const nn::Node& node = graph_->nodes[static_cast<size_t>(id)];
    const bool foreign = std::holds_alternative<nn::Foreign>(node.op);
    names += fmt::format("{}'{}'{}", names.empty() ? "" : " + ", node.name, foreign ? " (a custom layer)" : "");
  }
  return fmt::format("layer{} {}", nodes.size() == 1 ? "" : "s", names);
}

std::string NonFiniteSearch::kind(const nn::NodeRun& run, std::span<const at::Tensor> values) const {
  for (const at::Tensor& value : values) {
    if (value.defined() && !optim::all_finite(value)) return optim::non_finite_kind(value);
  }
  if (run.phase == nn::NodeRun::Phase::kForward) return "";
  for (const nn::Segment& segment : parameters_->segments()) {
    const bool own = std::any_of(run.nodes.begin(), run.nodes.end(), [&](int id) {
      return segment.spec.name.starts_with(graph_->nodes[static_cast<size_t>(id)].name + ".");
    });
    if (!own) continue;
    const at::Tensor gradient = parameters_->gradients().narrow(0, segment.offset, segment.count);
    if (!optim::all_finite(gradient)) return optim::non_finite_kind(gradient);
  }
  return "";
}

}  // namespace trainyard::train
