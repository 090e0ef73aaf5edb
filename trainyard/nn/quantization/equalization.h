// Cross-layer equalization and SmoothQuant: both rescale channels between two layers so that 8 bits suffice, and leave
// what the float network computes as it is.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/quantization/fold_batch_norms.h"

namespace trainyard::nn {

// Two layers with nothing but a ReLU or ReLU6, or nothing, between them.
struct LayerPair {
  int first = 0, second = 0;  // node ids
  int activation = -1;        // node id; -1: none
};

// Returns the pairs of convolutions and linear layers of which the second alone reads the first one's output.
[[nodiscard]] std::vector<LayerPair> find_pairs(const Graph& graph);

// Returns whether a convolution of the graph is depthwise, for which equalization was made.
[[nodiscard]] bool is_depthwise_network(const Graph& graph);

// Scales each channel between the layers of a pair by 1 / s, s = sqrt(r1 / r2) of the largest absolute weights that
// write and that read it, until all pairs have r1 = r2 (Nagel et al., "Data-free quantization through weight
// equalization and bias correction", 2019, section 4.1). relu(x / s) = relu(x) / s; relu6 is that only below 6, so a
// channel behind it is scaled only if the calibration images leave its values below 80 % of 6, before and after.
// Changes the network's parameters. Returns how many channels were scaled.
int64_t equalize_layers(FoldedNetwork& network, std::span<const at::Tensor> batches);

// Moves the differences between channels from activations into weights (Xiao et al., "SmoothQuant", 2023):
//   x[j] / s[j], W[:, j] * s[j], s[j] = max |x[j]|^alpha / max |W[:, j]|^(1 - alpha)
// for the outputs of layer norms, whose weight and bias are divided, that linear layers (or convolutions) alone read;
// and for outputs of attention that they alone read, where the rows of the values in the layer before are divided, as
// attention is linear in its values. A GELU between two linear layers lets no scale through. Changes the network's
// parameters. Returns how many layer norms and attentions were scaled.
int64_t smooth_activations(FoldedNetwork& network, std::span<const at::Tensor> batches, double alpha);

// Returns how many there are to scale.
[[nodiscard]] int64_t smoothable_activations(const Graph& graph);

}  // namespace trainyard::nn
