// Scales for tests: of each node by its smallest and largest value on some images, as the reference executor computes
// them in float. Weights fill their range.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>

#include "trainyard/nn/execution/executor.h"
#include "trainyard/nn/execution/value_observer.h"
#include "trainyard/nn/graph/fusion.h"
#include "trainyard/nn/graph/quantized_nodes.h"

namespace trainyard::nn::testing {

struct RangeObserver : ValueObserver {
  explicit RangeObserver(size_t nodes) : ranges(nodes) {}
  void made(const NodeRun& run, std::span<const at::Tensor> values) override {
    note(static_cast<size_t>(run.nodes.back()), values.front());
  }
  void note(size_t node, const at::Tensor& value) {
    ranges[node] = {std::min(0.0F, value.min().item<float>()), std::max(0.0F, value.max().item<float>())};
  }
  std::vector<std::pair<float, float>> ranges;  // by node: least, largest
};

// Returns the next power of two from `scale` on where `powers_of_two` asks for it.
inline float rounded_scale(float scale, bool powers_of_two) {
  return powers_of_two ? std::exp2(std::ceil(std::log2(scale))) : scale;
}

inline ActivationScale scale_of_range(std::pair<float, float> range, bool powers_of_two) {
  const float scale = rounded_scale(std::max((range.second - range.first) / 255, 1e-6F), powers_of_two);
  return {scale, static_cast<uint8_t>(std::clamp(std::lround(-range.first / scale), 0L, 255L))};
}

// Gives a scale to the input, to the last nodes of fused units and to what layers with 8-bit weights read, and weight
// scales to all convolutions and linear layers but those named in `in_float`. `set` is allocated and has values. With
// scales that are powers of two, float numbers are exact where no layer divides or has an exponential.
inline Quantization quantization_of(const Graph& graph, ParameterSet& set, const at::Tensor& images,
                                    const std::set<std::string>& in_float = {}, bool powers_of_two = false) {
  RangeObserver observer(graph.nodes.size());
  const auto reference = make_executor("reference", graph, {.mode = Mode::kInference, .parameters = &set});
  reference->set_observer(&observer);
  static_cast<void>(reference->forward(images, {}));
  observer.note(0, images);

  std::vector<bool> rounded(graph.nodes.size(), false), weighted(graph.nodes.size(), false);
  for (const Node& node : graph.nodes) {
    const bool layer = std::holds_alternative<Convolution>(node.op) || std::holds_alternative<Linear>(node.op);
    if (!layer || in_float.contains(node.name)) continue;
    weighted[static_cast<size_t>(node.id)] = rounded[static_cast<size_t>(node.inputs[0])] = true;
  }
  for (const Unit& unit : fuse(graph, true)) {
    const Op& head = graph.nodes[static_cast<size_t>(unit.head())].op;
    const bool floats = std::holds_alternative<LayerNorm>(head) || std::holds_alternative<Attention>(head) ||
                        std::holds_alternative<ClassToken>(head) || std::holds_alternative<PositionEmbedding>(head);
    if (!floats) rounded[static_cast<size_t>(unit.tail())] = true;
  }
  // What keeps the scale of its input needs one there.
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (rounded[static_cast<size_t>(node->id)] && keeps_scale(node->op)) {
      rounded[static_cast<size_t>(node->inputs[0])] = true;
    }
  }
  Quantization result;
  for (const Node& node : graph.nodes) {
    if (rounded[static_cast<size_t>(node.id)]) {
      result.activations[node.name] =
          keeps_scale(node.op) ? result.activations.at(graph.nodes[static_cast<size_t>(node.inputs[0])].name)
                               : scale_of_range(observer.ranges[static_cast<size_t>(node.id)], powers_of_two);
    }
    if (!weighted[static_cast<size_t>(node.id)]) continue;
    const at::Tensor largest = set.value(set.declare(node.parameters[0])).abs().flatten(1).amax(1);
    for (int64_t c = 0; c < largest.numel(); ++c) {
      const float most = largest.const_data_ptr<float>()[c];
      result.weights[node.name].push_back(most > 0 ? rounded_scale(most / 127 * 1.00001F, powers_of_two) : 1.0F);
    }
  }
  return result;
}

}  // namespace trainyard::nn::testing
