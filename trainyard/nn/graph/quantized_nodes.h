// The scales of a Quantization, by node of a graph, checked.
#pragma once

#include <vector>

#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"

namespace trainyard::nn {

// Points into the Quantization. By node id; null where the node has none.
struct QuantizedNodes {
  std::vector<const ActivationScale*> activations;
  std::vector<const std::vector<float>*> weights;
};

// A sum of this many products of 255 * 127 fits 32 bits.
constexpr int64_t kMostQuantizedTerms = 66000;

// Returns whether the node's output has only values of its (first) input, and zeros: it keeps the input's scale.
[[nodiscard]] bool keeps_scale(const Op& op);

// Finds the nodes. Throws kNotFound for a name that no node has, and kInvalidArgument for
// - a scale that is not a positive, finite number (or so small that its inverse is not finite),
// - weight scales of a node that is no convolution or linear layer, a wrong number of them, and weight scales of a node
//   whose input has no scale,
// - a node that keeps the scale of its input (keeps_scale) and has another one;
// kUnsupported for a layer whose sums have more than kMostQuantizedTerms terms.
[[nodiscard]] QuantizedNodes quantized_nodes(const Graph& graph, const Quantization& quantization);

}  // namespace trainyard::nn
