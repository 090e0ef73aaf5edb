#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/quantization/calibration.h"
#include "trainyard/nn/quantization/calibration_images.h"
#include "trainyard/nn/quantization/equalization.h"
#include "trainyard/nn/quantization/fold_batch_norms.h"
#include "trainyard/nn/quantization/layerwise_run.h"
#include "trainyard/nn/quantization/quantized_model.h"

namespace trainyard::nn {
namespace {

using core::Error, core::ErrorCode;

[[noreturn]] void refuse(std::string problem, std::string expected, std::string actual, std::string remedy = "") {
  throw Error(ErrorCode::kInvalidArgument, {.problem = std::move(problem),
                                            .where = "QuantizeOptions",
                                            .expected = std::move(expected),
                                            .actual = std::move(actual),
                                            .remedy = std::move(remedy)});
}

std::vector<RangeRule> rules_of(const QuantizeOptions& options) {
  std::vector<RangeRule> rules;
  const bool all = options.ranges == RangeMethod::kAuto;
  if (all || options.ranges == RangeMethod::kMinMax) rules.push_back({});
  if (all || options.ranges == RangeMethod::kPercentile) {
    const std::vector<double> tried = {99.9, 99.99, 99.999};
    for (double percent : options.percentile ? std::vector<double>{*options.percentile} : tried) {
      rules.push_back({.kind = RangeRule::Kind::kPercentile, .percent = percent});
    }
  }
  if (all || options.ranges == RangeMethod::kEntropy) rules.push_back({.kind = RangeRule::Kind::kEntropy});
  return rules;
}

// Tries ways to quantize one network.
class Search {
 public:
  Search(const Graph& graph, const ParameterSet& parameters, std::span<const at::Tensor> batches,
         const QuantizeOptions& options)
      : options_(options),
        folded_(fold_batch_norms(graph, parameters, /*all_biases=*/true)),
        images_(calibration_images(folded_.graph, batches)) {
    report_.calibration_images = images_.calibration_count;
    report_.held_out_images = images_.held_out_count;
    report_.held_out_are_calibration_images = images_.shared;
    report_.warnings = images_.warnings;
    LayerwiseRun exact(folded_.graph, *folded_.parameters);
    for (const at::Tensor& batch : images_.held_out) logits_.push_back(exact.run({&batch, 1}, {}).front());
  }

  QuantizedModel find() {
    const bool all = options_.method == QuantizeMethod::kAuto;
    if (all || options_.method == QuantizeMethod::kPlain || options_.method == QuantizeMethod::kBiasCorrection) {
      try_ranges("", folded_);
    }
    if (options_.method == QuantizeMethod::kEqualization || (all && is_depthwise_network(folded_.graph))) {
      FoldedNetwork equalized = copy();
      const int64_t channels = equalize_layers(equalized, images_.calibration);
      require(channels, "equalization", "two layers with nothing but a ReLU between them");
      if (channels > 0) try_ranges("equalization", equalized);
    }
    if (options_.method == QuantizeMethod::kSmoothQuant || (all && smoothable_activations(folded_.graph) > 0)) {
      FoldedNetwork smooth = copy();
      const int64_t activations = smooth_activations(smooth, images_.calibration, options_.smooth_alpha);
      require(activations, "SmoothQuant", "a layer norm or an attention that only linear layers read");
      if (activations > 0) try_ranges("smooth_quant", smooth);
    }
    return result();
  }

 private:
  // A way that was tried, as far as the best one is kept.
  struct Best {
    double signal_to_noise = -std::numeric_limits<double>::infinity();
    size_t trial = 0;
    FoldedNetwork network{};
    RoundedNetwork rounded{};
    QuantizationSites sites{};
  };

  FoldedNetwork copy() const {
    return {.graph = folded_.graph, .parameters = std::make_shared<ParameterSet>(folded_.parameters->clone())};
  }

  void require(int64_t found, const char* method, const char* needs) const {
    if (found > 0 || options_.method == QuantizeMethod::kAuto) return;
    refuse(fmt::format("the network has nothing that {} could change", method), needs, folded_.graph.name,
           "choose another method, or let it be chosen");
  }

  // Tries all rules for ranges, then bias correction with the best of them.
  void try_ranges(const std::string& preparation, const FoldedNetwork& network) {
    const Calibration calibration = calibrate(network, images_.calibration);
    require_layers(calibration.sites, network.graph);
    const bool corrects = options_.method != QuantizeMethod::kPlain;
    std::optional<Best> best;
    for (const RangeRule& rule : rules_of(options_)) {
      Best made = {
          .network = network, .rounded = round_network(network, calibration, rule), .sites = calibration.sites};
      judge(preparation.empty() ? rule.name() : rule.name() + ", " + preparation, made);
      if (!best || is_better(made, *best)) best = std::move(made);
    }
    if (corrects) {
      Best corrected = {.network = network, .sites = calibration.sites};
      corrected.rounded = {.parameters = std::make_shared<ParameterSet>(best->rounded.parameters->clone()),
                           .quantization = best->rounded.quantization};
      correct_biases(network, calibration.sites, corrected.rounded, images_.calibration);
      judge(report_.trials[best->trial].name + ", bias_correction", corrected);
      // A method that was asked for is not left out because of a few held-out images.
      if (options_.method != QuantizeMethod::kAuto || is_better(corrected, *best)) best = std::move(corrected);
    }
    if (!best_ || is_better(*best, *best_)) best_ = std::move(best);
  }

  static bool is_better(const Best& one, const Best& other) {
    if (std::isnan(other.signal_to_noise)) return !std::isnan(one.signal_to_noise);
    return one.signal_to_noise > other.signal_to_noise;
  }

  void judge(std::string name, Best& made) {
    const std::vector<at::Tensor> outputs =
        run_quantized(made.network.graph, *made.rounded.parameters, *made.rounded.quantization, images_.held_out);
    SignalAndNoise sums;
    for (size_t i = 0; i < outputs.size(); ++i) sums.add(logits_[i], outputs[i]);
    made.signal_to_noise = sums.decibels();
    made.trial = report_.trials.size();
    report_.trials.push_back({.name = std::move(name), .signal_to_noise = made.signal_to_noise});
  }

  static void require_layers(const QuantizationSites& sites, const Graph& graph) {
    if (std::find(sites.layers.begin(), sites.layers.end(), true) != sites.layers.end()) return;
    std::string reasons;
    for (const auto& [name, why] : sites.in_float) {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, why);
      if (reasons.size() > 400) break;
    }
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "no layer of the network can compute in 8 bits",
                 .where = graph.name,
                 .expected = "a convolution or a linear layer whose input is not always zero",
                 .actual = reasons.empty() ? "no layers" : reasons,
                 .remedy = "use the float model, or give other calibration images"});
  }

  QuantizedModel result() {
    report_.chosen = best_->trial;
    report_.in_float = best_->rounded.quantization->in_float;
    for (const Node& node : best_->network.graph.nodes) {
      if (best_->sites.layers[static_cast<size_t>(node.id)]) report_.layers_in_8_bits.push_back(node.name);
    }
    if (std::isnan(best_->signal_to_noise)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {.problem = "the network does not compute finite logits for the calibration images",
                   .where = folded_.graph.name,
                   .remedy = "check the weights and how images are normalized"});
    }
    return {.graph = std::move(best_->network.graph),
            .parameters = std::move(best_->rounded.parameters),
            .quantization = std::move(best_->rounded.quantization),
            .report = std::move(report_),
            .float_parameters = std::move(best_->network.parameters)};
  }

  const QuantizeOptions& options_;
  const FoldedNetwork folded_;
  const CalibrationImages images_;
  std::vector<at::Tensor> logits_;  // of the float network, for the held-out batches
  QuantizationReport report_;
  std::optional<Best> best_;
};

}  // namespace

void QuantizeOptions::validate() const {
  if (percentile && !(*percentile > 50 && *percentile <= 100)) {
    refuse("the percentile is out of range", "above 50, at most 100", fmt::format("{}", *percentile));
  }
  if (percentile && ranges != RangeMethod::kPercentile && ranges != RangeMethod::kAuto) {
    refuse("a percentile is given for another method", "RangeMethod::kPercentile", "another one");
  }
  if (!(smooth_alpha >= 0 && smooth_alpha <= 1)) {
    refuse("smooth_alpha is out of range", "0 to 1", fmt::format("{}", smooth_alpha));
  }
}

QuantizedModel quantize(const Graph& graph, const ParameterSet& parameters, std::span<const at::Tensor> batches,
                        const QuantizeOptions& options) {
  options.validate();
  const at::NoGradGuard no_grad;
  return Search(graph, parameters, batches, options).find();
}

}  // namespace trainyard::nn
