// Which nodes run as one step: batch norm with the addition and the activation behind it, a convolution with its ReLU,
// a sum with its ReLU, layer scale with the stochastic depth and the addition behind it. A node joins the one before it
// only where nobody else needs what lies between them.
//
// Where variables are constants, a convolution takes first: the batch norm behind it, the addition and the activation.
#pragma once

#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/graph/graph.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// Which nodes may join the one before them. Results are the same but for rounding.
struct Fusions {
  bool norm_addition = true;           // an addition its batch norm
  bool norm_activation = true;         // an activation its batch norm, behind the addition if that joined
  bool convolution_activation = true;  // a ReLU its convolution
  bool sum_activation = true;          // a ReLU its sum
  bool layer_scale = true;             // stochastic depth and an addition their layer scale
  bool folded_norm = true;             // where variables are constant: a batch norm its convolution, with what follows

  bool operator==(const Fusions&) const = default;
  // Returns that nothing may join.
  [[nodiscard]] static Fusions none() { return {false, false, false, false, false, false}; }
};

struct Unit {
  std::vector<int> nodes{};  // in graph order; the unit runs where its last node stands
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
