// Computes the operations and bytes of nodes by their definition, to compare with the time they took.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainyard/nn/execution/node_observer.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

struct NodeCostOptions {
  int64_t batch = 1;
  int64_t activation_bytes = 4;  // bytes of an element of activations
  int64_t parameter_bytes = 4;
};

class NodeCosts {
 public:
  // `graph` outlives it.
  NodeCosts(const Graph& graph, const NodeCostOptions& options);

  // Returns multiply-accumulates times two, of convolutions and linear layers. Forward: forward_flops() of the batch.
  // Backward: as many for the gradients of the weights, and as many again for the gradient of the input when a node
  // before it has parameters.
  int64_t flops(std::span<const int> nodes, NodeRun::Phase phase) const;

  // Returns the least bytes that fused nodes must move between memory and the processor, if caches keep everything
  // between them. Forward: values from other nodes and parameters in, values that other nodes use out. Backward:
  // gradients of these values in, of those out, parameters in, their gradients out, and the inputs that a derivative
  // needs (of convolution, linear, batch norm, multiply, local response norm, all activations but ReLU) in. Masks of
  // ReLU, dropout and max pools, and buffers, are left out, because they are small.
  int64_t bytes(std::span<const int> nodes, NodeRun::Phase phase) const;

  const Graph& graph() const { return graph_; }

 private:
  const Node& node(int id) const { return graph_.nodes[static_cast<size_t>(id)]; }
  int64_t value_bytes(int id) const;

  const Graph& graph_;
  NodeCostOptions options_;
  std::vector<bool> wants_gradient_;     // by node: whether its output requires a gradient
  std::vector<std::vector<int>> users_;  // by node; -1 for the caller, which reads the graph's output
};

}  // namespace trainyard::nn
