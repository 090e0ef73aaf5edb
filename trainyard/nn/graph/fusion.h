// Fuses nodes into steps: batch norm with the following addition and activation, a convolution with its ReLU, a sum
// with its ReLU, layer scale with the following stochastic depth and addition. A node is fused with the previous one
// only when no other node reads the value between them.
//
// When variables are constants, a convolution is fused with the following batch norm, addition and activation.
//
// In a network that computes in 8 bits, a unit ends with a node whose output has a scale.
#pragma once

#include <vector>

#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"

namespace trainyard::nn {

struct Unit {
  std::vector<int> nodes{};  // in graph order; the unit runs at the position of its last node
  int head() const { return nodes.front(); }
  int tail() const { return nodes.back(); }
  int norm = -1;        // of a convolution whose batch norm is folded into it
  int depth = -1;       // stochastic depth, of a layer scale
  int add = -1;         // of a batch norm, a convolution or a layer scale
  int residual = -1;    // the node whose output `add` adds
  int activation = -1;  // the last node, if it is one
};

// Returns all nodes but the inputs, each in one unit, ordered by tail. `quantization` may be null.
[[nodiscard]] std::vector<Unit> fuse(const Graph& graph, bool frozen = false, const Fusions& allowed = {},
                                     const Quantization* quantization = nullptr);

}  // namespace trainyard::nn
