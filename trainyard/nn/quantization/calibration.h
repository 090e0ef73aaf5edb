// Calibration of a folded network: the ranges of its values on calibration images, and the Quantization that follows.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/quantization/fold_batch_norms.h"
#include "trainyard/nn/quantization/quantization_sites.h"
#include "trainyard/nn/quantization/value_histogram.h"

namespace trainyard::nn {

// The values of a network on calibration images.
struct Calibration {
  QuantizationSites sites{};
  std::map<int, ValueHistogram> histograms{};  // by node id: those whose range gives a scale
};

// Runs the network over the images twice. Layers whose input is zero for all images are left in float. Throws
// kInvalidArgument, naming the node, when the float network itself computes NaN or infinite numbers.
[[nodiscard]] Calibration calibrate(const FoldedNetwork& network, std::span<const at::Tensor> batches);

// One way to find ranges.
struct RangeRule {
  enum class Kind { kMinMax, kPercentile, kEntropy };
  Kind kind = Kind::kMinMax;
  double percent = 100;                    // of kPercentile
  [[nodiscard]] std::string name() const;  // "percentile 99.99"
};

// A folded network with scales, its weights rounded.
struct RoundedNetwork {
  std::shared_ptr<ParameterSet> parameters{};
  std::shared_ptr<Quantization> quantization{};
};
[[nodiscard]] RoundedNetwork round_network(const FoldedNetwork& network, const Calibration& calibration,
                                           const RangeRule& rule);

// Adds to the bias of each 8-bit layer the difference of its mean outputs, by channel, in the float network and in the
// rounded one, on these images. Layer after layer: each one's inputs are those that the corrected layers before it give
// (Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019, section 4.2 and
// appendix D; means of images instead of batch norms' statistics). All 8-bit layers have a bias.
void correct_biases(const FoldedNetwork& network, const QuantizationSites& sites, RoundedNetwork& rounded,
                    std::span<const at::Tensor> batches);

// Returns the largest and the largest absolute value of each channel (first dimension without the batch) of the nodes'
// outputs: [C] float each.
struct ChannelMaxima {
  at::Tensor largest{}, absolute{};
};
[[nodiscard]] std::map<int, ChannelMaxima> channel_maxima(const FoldedNetwork& network,
                                                          std::span<const at::Tensor> batches,
                                                          const std::vector<int>& nodes);

}  // namespace trainyard::nn
