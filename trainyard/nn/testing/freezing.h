// What the tests of frozen parameters share: networks, choices of what to freeze, and steps of training.
#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "trainyard/nn/testing/conformance_rig.h"

namespace trainyard::nn::freezing {

// A network and which of its parameters are frozen.
struct Case {
  std::string name;  // CamelCase
  Graph graph;
  std::function<bool(std::string_view parameter)> is_frozen;
};
std::ostream& operator<<(std::ostream& out, const Case& c);
inline std::string case_name(const ::testing::TestParamInfo<Case>& tested) {
  return tested.param.name;
}

// Each network with each choice: all below the head, norms only, weights only, ...
std::vector<Case> cases();

// Convolutions with batch norms in residual blocks, with and without a shortcut, a pool and a linear layer.
Graph residual_graph();

// Freezes what `is_frozen` names, and thaws all else.
void freeze(ParameterSet& set, const std::function<bool(std::string_view)>& is_frozen);

struct Step {
  at::Tensor output, image_gradient;            // the latter is undefined where it was not asked for
  std::map<std::string, at::Tensor> gradients;  // by parameter name
  std::map<std::string, at::Tensor> buffers;    // as the step leaves them
};
// Runs forward and backward once for each of `images`, a micro-step each. The output is the last one's. Gradients hold
// other numbers beforehand, so that missing writes are detected.
Step step(conformance::Rig& rig, const std::vector<at::Tensor>& images, bool image_gradient);

std::map<std::string, at::Tensor> buffers_of(const ParameterSet& set);
void set_buffers(ParameterSet& set, const std::map<std::string, at::Tensor>& buffers);

// Returns images of the graph's shape: [batch, C, H, W] double.
at::Tensor images_of(const Graph& graph, int64_t batch, std::string_view name = "images");

// Returns the names of the buffers of nodes whose parameters are all frozen.
std::set<std::string> frozen_buffers(const Graph& graph, const ParameterSet& set);
// Expects that the frozen buffers, and no others, are in `actual` as they were in `start`.
void expect_frozen_buffers_kept(const Graph& graph, const ParameterSet& set,
                                const std::map<std::string, at::Tensor>& start, const Step& actual);
// Runs a step, a step with what `is_frozen` names frozen, and, thawed and with the first buffers, the step that is
// returned.
Step step_once_thawed(conformance::Rig& rig, const std::function<bool(std::string_view)>& is_frozen,
                      const at::Tensor& images, bool image_gradient);

// Returns the ids of nodes whose output needs a gradient for some trainable parameter.
std::set<int> nodes_that_train(const Graph& graph, const ParameterSet& set);

// Collects the nodes whose backward runs.
class BackwardListener : public NodeObserver {
 public:
  void ran(const NodeRun& run) override {
    if (run.phase == NodeRun::Phase::kBackward) nodes.insert(run.nodes.begin(), run.nodes.end());
  }
  std::set<int> nodes;
};

}  // namespace trainyard::nn::freezing
