// Prunes weights of a network to 2:4 sparsity: two of each four consecutive weights along a layer's inputs are zero,
// which sparse tensor cores compute at twice the speed (Mishra et al., "Accelerating sparse deep neural networks",
// 2021). A pruned weight has a mask (nn::ParameterSet::set_mask), which keeps its zeros in every step of every
// optimizer, is copied to all replicas, and is saved and loaded:
//
//   const std::vector<SparseLayer> layers = sparse_layers(graph, {});
//   const std::vector<LayerSparsity> report = prune(parameters, layers, MaskAlgorithm::kMask1d);
//
// As in PaddlePaddle, weights of convolutions and linear layers are pruned; biases, the parameters of norms,
// embeddings, transposed convolutions and custom layers are not.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

// How the two weights of each four are selected that stay. These are the algorithms of PaddlePaddle's ASP
// (paddle.incubate.asp), whose masks these are bit for bit. Fours lie along a layer's inputs: along those of one output
// of a linear layer, or of one pixel of a convolution.
enum class MaskAlgorithm {
  // Keeps the two of the greatest magnitude in each four.
  kMask1d,
  // In each 4 x 4 block keeps the greatest magnitudes, as long as no row and no column has more than two: the transpose
  // is 2:4, too. In some blocks only seven are kept, because the remaining row and column do not meet.
  kMask2dGreedy,
  // In each 4 x 4 block selects the one of the 90 patterns with two in each row and column that keeps the greatest sum
  // of magnitudes. Greedy keeps 0.974 of it on average for uniform weights and 0.985 for normal ones.
  kMask2dBest,
  // Does the same by the sum of signed weights, as Paddle's mask_2d_best computes, contrary to its description: it
  // drops large negative weights.
  kMask2dBestSigned,
};

// "mask_1d", "mask_2d_greedy", "mask_2d_best", "mask_2d_best_signed".
const std::vector<std::string>& mask_algorithm_names();
std::string_view mask_algorithm_name(MaskAlgorithm algorithm);
// Returns the algorithm of that name. Throws kInvalidArgument, with the nearest name.
[[nodiscard]] MaskAlgorithm mask_algorithm_from_name(std::string_view name);

struct SparsityOptions {
  MaskAlgorithm algorithm = MaskAlgorithm::kMask1d;
  // Patterns (core::matches_pattern) of layers that stay dense, by the name of the layer or of its weight: "fc",
  // "layer4.*". Unset: the layer of the main output, the "fc" that Paddle's ResNet program excludes.
  std::optional<std::vector<std::string>> exclude{};
};

enum class SparsityTreatment {
  kSparse,     // becomes 2:4
  kExcluded,   // stays dense because a pattern matches it
  kFewInputs,  // stays dense because it has fewer than four inputs
};
// Returns "sparse", "excluded", "few inputs".
[[nodiscard]] std::string_view treatment_name(SparsityTreatment treatment);

// A convolution or linear layer.
struct SparseLayer {
  std::string layer{};      // the node's name
  std::string parameter{};  // its weight's
  nn::Shape shape{};        // of the weight
  SparsityTreatment treatment = SparsityTreatment::kSparse;
};

// Returns the convolutions and linear layers of the graph, in its order. Throws kInvalidArgument, with the nearest
// name, for a pattern that matches none of them.
[[nodiscard]] std::vector<SparseLayer> sparse_layers(const nn::Graph& graph,
                                                     const std::optional<std::vector<std::string>>& exclude = {});

struct LayerSparsity {
  SparseLayer layer{};
  double density = 1;        // the share of elements that are not zero
  bool two_of_four = false;  // no four has more than two elements that are not zero
  bool masked = false;       // it has a mask
  // The share of the sum of magnitudes that the algorithm's mask keeps; 1 for a layer that stays dense.
  double kept = 1;
};

// Describes the current weights of the layers, in host memory or on a device. Throws kNotFound for a layer that the set
// lacks, kInvalidArgument, with its name, for a weight to prune that has NaN or infinity.
std::vector<LayerSparsity> measure_sparsity(const nn::ParameterSet& parameters, const std::vector<SparseLayer>& layers,
                                            MaskAlgorithm algorithm);

// Sets a mask on the weights of sparse layers, also when they already have one, and describes the pruned layers; `kept`
// is what this pruning has kept of each. Throws the same, and what set_mask() throws, before any weight is changed.
// Call it between steps.
std::vector<LayerSparsity> prune(nn::ParameterSet& parameters, const std::vector<SparseLayer>& layers,
                                 MaskAlgorithm algorithm);

// Returns true when a parameter of the set has a mask, of whatever origin.
[[nodiscard]] bool has_masks(const nn::ParameterSet& parameters);

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
