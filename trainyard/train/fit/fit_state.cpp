#include "trainyard/train/fit/fit_state.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/nn/graph/graph_json.h"

namespace trainyard::train {
namespace {

constexpr const char* kSavedState = "the checkpoint";
constexpr const char* kStepsPerEpoch = "fit/steps_per_epoch";

[[noreturn]] void refuse_state(std::string problem, std::string expected, std::string actual) {
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = std::move(problem),
                     .where = kSavedState,
                     .expected = std::move(expected),
                     .actual = std::move(actual),
                     .remedy = "choose another train_dir, or train what this one holds"});
}

std::string node_text(const nn::Node& node) {
  return fmt::format("{} '{}' {} {}", node.kind(), node.name, node.description(), nn::to_string(node.shape));
}

// Throws for the first node that differs.
void compare_graphs(const nn::Graph& saved, const nn::Graph& now) {
  for (size_t i = 0; i < std::max(saved.nodes.size(), now.nodes.size()); ++i) {
    const std::string before = i < saved.nodes.size() ? node_text(saved.nodes[i]) : "no more nodes";
    const std::string after = i < now.nodes.size() ? node_text(now.nodes[i]) : "no more nodes";
    if (before != after) refuse_state("the checkpoint is of another graph", before, after);
  }
  refuse_state("the checkpoint is of a graph with other attributes or outputs", "graph " + saved.name,
               "graph " + now.name);
}

}  // namespace

FitState::FitState(Trainer& trainer, const ModelDescription& description, int64_t steps_per_epoch)
    : trainer_(trainer), metadata_(metadata_of(description)), steps_per_epoch_(steps_per_epoch) {}

void FitState::save(core::StateWriter& writer) const {
  trainer_.save(writer);
  save_metadata(metadata_, writer);
  writer.integer(kStepsPerEpoch, steps_per_epoch_);
}

void FitState::load(const core::StateReader& reader) {
  const ModelMetadata saved = saved_metadata(reader);
  if (saved.empty()) refuse_state("the checkpoint was not saved by fit()", "one of fit()", "one of another training");
  const ModelDescription before = described_in(saved, kSavedState), now = described_in(metadata_, "this training");
  if (before.graph.has_value() != now.graph.has_value()) {
    refuse_state("the checkpoint is of another graph", before.graph ? "no custom layer" : "a custom layer",
                 before.graph ? "a custom layer" : "no custom layer");
  }
  if (before.graph && nn::graph_json(*before.graph) != nn::graph_json(*now.graph)) {
    compare_graphs(*before.graph, *now.graph);
  }
  if (before.classes != now.classes) {
    refuse_state("the checkpoint is of other classes", data::quoted_classes(before.classes),
                 data::quoted_classes(now.classes));
  }
  // What is done would be no whole number of epochs. Earlier versions did not save how long they are.
  const int64_t steps = reader.has(kStepsPerEpoch) ? reader.integer(kStepsPerEpoch) : steps_per_epoch_;
  if (steps != steps_per_epoch_) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "the checkpoint is of a training with epochs of another length",
                       .where = kSavedState,
                       .expected = fmt::format("{} steps", steps),
                       .actual = fmt::format("{} steps", steps_per_epoch_),
                       .remedy = "train with the batch size, the replicas, the data and the steps_per_epoch that it "
                                 "had, or choose another train_dir"});
  }
  trainer_.load(reader);
}

}  // namespace trainyard::train
