// Runs a network one layer after the other over many batches, in float, with a look at each value and a chance to
// replace it: for ranges, means and noise.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/graph/quantization.h"
#include "trainyard/nn/quantization/quantization_sites.h"
#include "trainyard/nn/quantization/rounding.h"
#include "trainyard/nn/reference/bound_layer.h"

namespace trainyard::nn {

class LayerwiseRun {
 public:
  // The graph has one input. Both outlive the object; values that change in the set are seen by the next node.
  LayerwiseRun(const Graph& graph, ParameterSet& parameters);
  LayerwiseRun(const LayerwiseRun&) = delete;
  LayerwiseRun& operator=(const LayerwiseRun&) = delete;

  // Called behind each node with its output for each batch, [N, ...] float; images may be in channels-last layout. May
  // replace tensors, not write into them: flattenings share memory with their inputs.
  using Visit = std::function<void(const Node& node, std::vector<at::Tensor>& values)>;
  // Runs all batches through each node before the next node, and returns the main output of each.
  std::vector<at::Tensor> run(std::span<const at::Tensor> batches, const Visit& visit);
  // Runs one node of the graph.
  at::Tensor run_node(const Node& node, std::span<const at::Tensor> inputs);

 private:
  const Graph& graph_;
  BuildContext context_;
  std::vector<std::unique_ptr<BoundLayer>> layers_{};  // by node id; null for inputs
  std::vector<std::vector<int>> last_uses_{};          // by node id: nodes whose output is not needed after it
};

// Runs the quantized network by the definition of its numbers: weights in `parameters` are rounded already, and each
// value that has a scale is rounded. Returns the main output of each batch.
std::vector<at::Tensor> run_quantized(const Graph& graph, ParameterSet& parameters, const Quantization& quantization,
                                      std::span<const at::Tensor> batches);

// Replaces the values by what is left of them in 8 bits, if the node's output has a scale.
void round_values(const Node& node, const Quantization& quantization, std::vector<at::Tensor>& values);

// Returns 10 * log10(signal / noise) of sums of squares, in dB: infinite without noise, NaN when a number is.
[[nodiscard]] double decibels(double signal, double noise);

// Sums of squares over values and over their differences from others.
struct SignalAndNoise {
  double signal = 0, noise = 0;
  void add(const at::Tensor& expected, const at::Tensor& actual);
  [[nodiscard]] double decibels() const { return nn::decibels(signal, noise); }
};

}  // namespace trainyard::nn
