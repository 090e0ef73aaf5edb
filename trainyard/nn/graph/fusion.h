// Fuses nodes into steps: batch norm with the following addition and activation, a convolution with its ReLU, a sum
// with its ReLU, layer scale with the following stochastic depth and addition. A node is fused with the previous one
// only when no other node reads the value between them.
//
// When variables are constants, a convolution is fused with the following batch norm, addition and activation.
#pragma once

#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/graph.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// Which nodes may be fused with the previous one. Results are the same except for rounding.
struct Fusions {
  bool norm_addition = true;           // an addition with its batch norm
  bool norm_activation = true;         // an activation with its batch norm, after the addition if that is fused
  bool convolution_activation = true;  // a ReLU with its convolution
  bool sum_activation = true;          // a ReLU with its sum
  bool layer_scale = true;             // stochastic depth and an addition with their layer scale
  bool folded_norm = true;  // when variables are constant: a batch norm with its convolution, and the nodes after it

  bool operator==(const Fusions&) const = default;
  // Returns the options without any fusion.
  [[nodiscard]] static Fusions none() { return {false, false, false, false, false, false}; }
};

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

// Returns all nodes but the inputs, each in one unit, ordered by tail.
[[nodiscard]] std::vector<Unit> fuse(const Graph& graph, bool frozen = false, const Fusions& allowed = {});

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
