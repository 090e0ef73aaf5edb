// Decides which nodes of a graph compute in 8 bits, and why others do not.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

struct QuantizationSites {
  std::vector<bool> layers{};  // by node id: a convolution or linear layer whose weights are integers
  // By node id: the node whose range gives the scale of this node's output; -1: the output stays in float. A node that
  // only moves or picks values shares the scale of its input, and the inputs of a concatenation that nothing else reads
  // share the one of its output, so that each value is rounded once.
  std::vector<int> range_of{};
  std::map<std::string, std::string> in_float{};  // by node that stays in float: why
};

// Returns the sites of a graph (without batch norms behind convolutions: fold_batch_norms()). All convolutions and
// linear layers compute in 8 bits, and what lies between them where the values come from 8-bit layers and go to some.
// Values that no 8-bit layer reads stay in float: logits, the residual sums of transformers between layer norms.
// `unavailable` names nodes, by id, whose output cannot be in 8 bits, and why.
[[nodiscard]] QuantizationSites find_sites(const Graph& graph, const std::map<int, std::string>& unavailable = {});

}  // namespace trainyard::nn
