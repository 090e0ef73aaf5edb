#include "trainyard/nn/quantization/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/maximum.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/quantization/layerwise_run.h"
#include "trainyard/nn/quantization/weights_of.h"

namespace trainyard::nn {
namespace {

// Bytes of one node's values that bias correction keeps for all its images.
constexpr int64_t kMostBytes = int64_t{256} << 20;

void require_finite(const Node& node, const ValueRange& range, std::string_view network) {
  if (std::isfinite(range.low) && std::isfinite(range.high)) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    {.problem = "the float network computes NaN or infinite numbers for calibration images",
                     .where = fmt::format("node '{}' of {}", node.name, network),
                     .remedy = "check the weights and how images are normalized"});
}

// Means over all images and pixels, by channel.
class ChannelMean {
 public:
  // values: [N, C, ...] or [N, F].
  void add(const at::Tensor& values) {
    const at::Tensor by_channel = values.to(at::kDouble).transpose(0, 1).flatten(1);  // [C, N * pixels]
    const at::Tensor sum = by_channel.sum(1);
    sum_ = sum_.defined() ? sum_.add(sum) : sum;
    count_ += by_channel.size(1);
  }
  at::Tensor mean() const { return sum_.div(static_cast<double>(count_)); }  // [C] double

 private:
  at::Tensor sum_;
  int64_t count_ = 0;
};

at::Tensor mean_of(const std::vector<at::Tensor>& values) {
  ChannelMean mean;
  for (const at::Tensor& value : values) mean.add(value);
  return mean.mean();
}

// Returns the first batches, as many as memory for all their values is kept.
std::span<const at::Tensor> that_fit(const Graph& graph, std::span<const at::Tensor> batches) {
  int64_t largest = 1;
  for (const Node& node : graph.nodes) {
    int64_t bytes = sizeof(float);
    for (int64_t extent : node.shape) bytes *= extent;
    largest = std::max(largest, bytes);
  }
  int64_t images = 0;
  size_t taken = 0;
  while (taken < batches.size() && (taken == 0 || (images + batches[taken].size(0)) * largest <= kMostBytes)) {
    images += batches[taken++].size(0);
  }
  return batches.first(taken);
}

}  // namespace

std::string RangeRule::name() const {
  switch (kind) {
    case Kind::kMinMax:
      return "min_max";
    case Kind::kPercentile:
      return fmt::format("percentile {}", percent);
    case Kind::kEntropy:
      return "entropy";
  }
  return "";
}

Calibration calibrate(const FoldedNetwork& network, std::span<const at::Tensor> batches) {
  LayerwiseRun run(network.graph, *network.parameters);
  Calibration calibration{.sites = find_sites(network.graph)};
  std::map<int, ValueHistogram> all;
  for (const at::Tensor& batch : batches) {
    run.run({&batch, 1}, [&](const Node& node, std::vector<at::Tensor>& values) {
      if (calibration.sites.range_of[static_cast<size_t>(node.id)] < 0 && node.id != network.graph.output()) return;
      ValueHistogram& histogram = all[node.id];
      histogram.find_range(values.front());
      require_finite(node, histogram.min_max(), network.graph.name);
    });
  }
  all.erase(network.graph.output());
  std::map<int, std::string> unavailable;
  for (const auto& [id, histogram] : all) {
    if (!is_usable(histogram.min_max())) unavailable[id] = "is zero for all calibration images";
  }
  if (!unavailable.empty()) calibration.sites = find_sites(network.graph, unavailable);
  for (int id : std::set<int>(calibration.sites.range_of.begin(), calibration.sites.range_of.end())) {
    if (id >= 0) calibration.histograms[id] = all.at(id);
  }
  for (const at::Tensor& batch : batches) {
    run.run({&batch, 1}, [&](const Node& node, std::vector<at::Tensor>& values) {
      const auto histogram = calibration.histograms.find(node.id);
      if (histogram != calibration.histograms.end()) histogram->second.count(values.front());
    });
  }
  return calibration;
}

RoundedNetwork round_network(const FoldedNetwork& network, const Calibration& calibration, const RangeRule& rule) {
  const auto range_of = [&](const ValueHistogram& histogram) {
    switch (rule.kind) {
      case RangeRule::Kind::kPercentile:
        return histogram.percentile(rule.percent);
      case RangeRule::Kind::kEntropy:
        return histogram.entropy();
      case RangeRule::Kind::kMinMax:
        break;
    }
    return histogram.min_max();
  };
  std::map<int, ActivationScale> scales;
  for (const auto& [id, histogram] : calibration.histograms) scales[id] = activation_scale(range_of(histogram));
  RoundedNetwork rounded{.parameters = std::make_shared<ParameterSet>(network.parameters->clone()),
                         .quantization = std::make_shared<Quantization>()};
  rounded.quantization->in_float = calibration.sites.in_float;
  for (const Node& node : network.graph.nodes) {
    const auto id = static_cast<size_t>(node.id);
    if (calibration.sites.range_of[id] >= 0) {
      rounded.quantization->activations[node.name] = scales.at(calibration.sites.range_of[id]);
    }
    if (!calibration.sites.layers[id]) continue;
    std::vector<float> weights = weight_scales(weight_of(node, *rounded.parameters));
    round_weights(node, weights, *rounded.parameters);
    rounded.quantization->weights[node.name] = std::move(weights);
  }
  rounded.parameters->values_changed();
  return rounded;
}

void correct_biases(const FoldedNetwork& network, const QuantizationSites& sites, RoundedNetwork& rounded,
                    std::span<const at::Tensor> batches) {
  const at::NoGradGuard no_grad;
  const std::span<const at::Tensor> used = that_fit(network.graph, batches);
  std::map<int, ChannelMean> wanted;
  LayerwiseRun exact(network.graph, *network.parameters);
  for (const at::Tensor& batch : used) {
    exact.run({&batch, 1}, [&](const Node& node, std::vector<at::Tensor>& values) {
      if (sites.layers[static_cast<size_t>(node.id)]) wanted[node.id].add(values.front());
    });
  }
  LayerwiseRun corrected(network.graph, *rounded.parameters);
  corrected.run(used, [&](const Node& node, std::vector<at::Tensor>& values) {
    if (sites.layers[static_cast<size_t>(node.id)]) {
      const at::Tensor difference = wanted.at(node.id).mean().sub(mean_of(values)).to(at::kFloat);
      bias_of(node, *rounded.parameters).add_(difference);
      std::vector<int64_t> by_channel(static_cast<size_t>(values.front().dim()), 1);
      by_channel[1] = -1;
      for (at::Tensor& value : values) value = value.add(difference.view(by_channel));
    }
    round_values(node, *rounded.quantization, values);
  });
  rounded.parameters->values_changed();
}

std::map<int, ChannelMaxima> channel_maxima(const FoldedNetwork& network, std::span<const at::Tensor> batches,
                                            const std::vector<int>& nodes) {
  const std::set<int> wanted(nodes.begin(), nodes.end());
  std::map<int, ChannelMaxima> maxima;
  LayerwiseRun run(network.graph, *network.parameters);
  for (const at::Tensor& batch : batches) {
    run.run({&batch, 1}, [&](const Node& node, std::vector<at::Tensor>& values) {
      if (!wanted.contains(node.id)) return;
      const at::Tensor by_channel = values.front().transpose(0, 1).flatten(1);
      ChannelMaxima& of = maxima[node.id];
      const auto join = [](at::Tensor& known, const at::Tensor& found) {
        known = known.defined() ? at::maximum(known, found) : found;
      };
      join(of.largest, by_channel.amax(1));
      join(of.absolute, by_channel.abs().amax(1));
    });
  }
  return maxima;
}

}  // namespace trainyard::nn
