#include "trainyard/optim/sparsity/prune.h"

#include <algorithm>
#include <variant>

#include <ATen/ops/abs.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/sum.h>

#include "trainyard/core/base/enum_name.h"
#include "trainyard/core/base/error.h"
#include "trainyard/core/base/pattern.h"
#include "trainyard/core/base/registry.h"
#include "trainyard/optim/sparsity/mask_algorithm.h"

namespace trainyard::optim {

using core::Error;

namespace {

bool is_prunable_layer(const nn::Node& node) {
  return std::holds_alternative<nn::Convolution>(node.op) || std::holds_alternative<nn::Linear>(node.op);
}

// Returns the convolution or linear layer whose result, through layers of other kinds, is the main output. Null: there
// is none on the way.
const nn::Node* output_layer(const nn::Graph& graph) {
  if (graph.outputs.empty()) return nullptr;
  const nn::Node* node = &graph.nodes[static_cast<size_t>(graph.output())];
  while (!is_prunable_layer(*node)) {
    if (node->inputs.empty()) return nullptr;
    node = &graph.nodes[static_cast<size_t>(node->inputs.front())];
  }
  return node;
}

void exclude_named(std::vector<SparseLayer>& layers, const std::string& pattern) {
  bool found = false;
  for (SparseLayer& each : layers) {
    if (!core::matches_pattern(each.layer, pattern) && !core::matches_pattern(each.parameter, pattern)) continue;
    found = true;
    each.treatment = SparsityTreatment::kExcluded;
  }
  if (found) return;
  std::vector<std::string> names;
  for (const SparseLayer& each : layers) names.push_back(each.layer);
  throw Error(core::ErrorCode::kInvalidArgument,
              core::unknown_name("convolution or linear layer", pattern, names).detail());
}

nn::ParameterId id_of(const nn::ParameterSet& parameters, const SparseLayer& layer) {
  if (const auto id = parameters.find(layer.parameter)) return *id;
  std::vector<std::string> names;
  for (const nn::Segment& segment : parameters.segments()) names.push_back(segment.spec.name);
  throw core::unknown_name("parameter", layer.parameter, names);
}

at::Tensor mask_of(const at::Tensor& weight, const SparseLayer& layer, MaskAlgorithm algorithm) try {
  return sparsity_mask(weight, algorithm);
} catch (const Error& error) {
  throw error.in(layer.parameter);
}

double magnitude(const at::Tensor& weight) {
  return weight.abs().sum(at::kDouble).item<double>();
}

// Describes a weight; `mask` is what the algorithm makes of it, and undefined for one that stays dense.
LayerSparsity describe(const nn::ParameterSet& parameters, nn::ParameterId id, const SparseLayer& layer,
                       const at::Tensor& weight, const at::Tensor& mask) {
  LayerSparsity result{.layer = layer, .masked = parameters.mask(id).defined()};
  if (weight.numel() > 0) {
    result.density = static_cast<double>(weight.count_nonzero().item<int64_t>()) / static_cast<double>(weight.numel());
  }
  result.two_of_four = can_be_sparse(weight.sizes()) && is_two_of_four(weight);
  const double whole = mask.defined() ? magnitude(weight) : 0;
  if (whole > 0) result.kept = magnitude(weight.mul(mask)) / whole;
  return result;
}

}  // namespace

std::string_view treatment_name(SparsityTreatment treatment) {
  return core::enum_name<SparsityTreatment::kFewInputs>(treatment, {"sparse", "excluded", "few inputs"});
}

std::vector<SparseLayer> sparse_layers(const nn::Graph& graph, const std::optional<std::vector<std::string>>& exclude) {
  std::vector<SparseLayer> layers;
  for (const nn::Node& node : graph.nodes) {
    if (!is_prunable_layer(node)) continue;
    const nn::ParameterSpec& weight = node.parameters.front();
    layers.push_back({.layer = node.name, .parameter = weight.name, .shape = weight.shape});
  }
  if (exclude) {
    for (const std::string& pattern : *exclude) exclude_named(layers, pattern);
  } else if (const nn::Node* last = output_layer(graph)) {
    for (SparseLayer& each : layers) {
      if (each.layer == last->name) each.treatment = SparsityTreatment::kExcluded;
    }
  }
  for (SparseLayer& each : layers) {
    if (!can_be_sparse(each.shape)) each.treatment = SparsityTreatment::kFewInputs;
  }
  return layers;
}

std::vector<LayerSparsity> measure_sparsity(const nn::ParameterSet& parameters, const std::vector<SparseLayer>& layers,
                                            MaskAlgorithm algorithm) {
  std::vector<LayerSparsity> report;
  for (const SparseLayer& layer : layers) {
    const nn::ParameterId id = id_of(parameters, layer);
    const at::Tensor weight = parameters.value(id).cpu();
    const bool sparse = layer.treatment == SparsityTreatment::kSparse;
    report.push_back(
        describe(parameters, id, layer, weight, sparse ? mask_of(weight, layer, algorithm) : at::Tensor()));
  }
  return report;
}

std::vector<LayerSparsity> prune(nn::ParameterSet& parameters, const std::vector<SparseLayer>& layers,
                                 MaskAlgorithm algorithm) {
  std::vector<at::Tensor> masks;
  std::vector<double> kept;
  // All masks before the first change: a weight that cannot be pruned leaves the others as they were.
  for (const SparseLayer& layer : layers) {
    const at::Tensor weight = parameters.value(id_of(parameters, layer));
    const bool sparse = layer.treatment == SparsityTreatment::kSparse;
    masks.push_back(sparse ? mask_of(weight, layer, algorithm) : at::Tensor());
    const double whole = sparse ? magnitude(weight) : 0;
    kept.push_back(whole > 0 ? magnitude(weight.mul(masks.back())) / whole : 1.0);
  }
  std::vector<LayerSparsity> report;
  for (size_t i = 0; i < layers.size(); ++i) {
    const nn::ParameterId id = id_of(parameters, layers[i]);
    if (masks[i].defined()) parameters.set_mask(id, masks[i]);
    report.push_back(describe(parameters, id, layers[i], parameters.value(id), {}));
    report.back().kept = kept[i];
  }
  return report;
}

bool has_masks(const nn::ParameterSet& parameters) {
  const auto& segments = parameters.segments();
  return std::any_of(segments.begin(), segments.end(),
                     [&](const nn::Segment& segment) { return parameters.mask(segment.id).defined(); });
}

}  // namespace trainyard::optim
