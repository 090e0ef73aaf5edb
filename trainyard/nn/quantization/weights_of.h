// The weights and biases of convolutions and linear layers.
#pragma once

#include <string>
#include <variant>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {

// Returns whether the operation has a weight whose first dimension is that of its output channels.
inline bool is_weighted(const Op& op) {
  return std::holds_alternative<Convolution>(op) || std::holds_alternative<Linear>(op);
}

inline bool has_bias(const Op& op) {
  if (const auto* convolution = std::get_if<Convolution>(&op)) return convolution->bias;
  const auto* linear = std::get_if<Linear>(&op);
  return linear != nullptr && linear->bias;
}

// Returns the names of a weighted node's parameters; bias_name() of one that has a bias.
inline const std::string& weight_name(const Node& node) {
  return node.parameters.at(0).name;
}
inline const std::string& bias_name(const Node& node) {
  return node.parameters.at(1).name;
}

// Returns views of a weighted node's parameters.
inline at::Tensor weight_of(const Node& node, const ParameterSet& set) {
  return set.value(*set.find(weight_name(node)));
}
inline at::Tensor bias_of(const Node& node, const ParameterSet& set) {
  return set.value(*set.find(bias_name(node)));
}

// Returns the number of groups of a weighted node's channels; 1 for linear layers.
inline int64_t groups_of(const Op& op) {
  const auto* convolution = std::get_if<Convolution>(&op);
  return convolution != nullptr ? convolution->groups : 1;
}

}  // namespace trainyard::nn
