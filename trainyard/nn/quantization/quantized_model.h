// From a network in floating point to one that computes in 8-bit integers (docs/design/quantization.md).
//
//   nn::QuantizedModel model = nn::quantize(graph, parameters, batches);   // batches: images of the training's kind
//   auto executor = nn::make_executor("cpu", model.graph, {.mode = nn::Mode::kInference, .frozen = true,
//                                     .parameters = model.parameters.get(), .quantization = model.quantization});
//   fmt::print("{}", nn::to_text(model.report));
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::nn {

// How the range of an activation follows from its values on the calibration images. A range always contains zero.
enum class RangeMethod {
  kAuto,        // tries the others and takes the best one
  kMinMax,      // the smallest and the largest value
  kPercentile,  // leaves out the QuantizeOptions::percentile'th part of the values at each end
  kEntropy,     // least Kullback-Leibler divergence (Migacz, "8-bit inference with TensorRT", 2017)
};

// What is changed in the network before it is rounded.
enum class QuantizeMethod {
  kAuto,            // tries those that apply to the network and takes the best one
  kPlain,           // nothing
  kBiasCorrection,  // full bias correction (Nagel et al., "Data-free quantization through weight equalization and bias
                    // correction", 2019, section 4.2), with means of calibration images
  kEqualization,    // cross-layer equalization (the same, section 4.1), then bias correction
  kSmoothQuant,     // SmoothQuant (Xiao et al., "SmoothQuant", 2023), then bias correction
};

struct QuantizeOptions {
  RangeMethod ranges = RangeMethod::kAuto;
  QuantizeMethod method = QuantizeMethod::kAuto;
  // Percent of the values that kPercentile keeps inside the range, at each end. Unset: tries 99.9, 99.99 and 99.999.
  std::optional<double> percentile = std::nullopt;
  // SmoothQuant: 1 makes the activations of all channels equally large, 0 the weights that read them.
  double smooth_alpha = 0.5;

  void validate() const;  // throws kInvalidArgument
};

// One way to quantize that was tried, and how well its logits agree with the float network's.
struct QuantizationTrial {
  std::string name{};  // "entropy, bias_correction"
  // 10 * log10(sum of squared float logits / sum of squared differences), in dB, on the held-out images; infinite when
  // all are equal. NaN: the network did not compute finite logits.
  double signal_to_noise = 0;
};

// What quantize() did, for people.
struct QuantizationReport {
  std::vector<QuantizationTrial> trials{};  // in the order in which they were made
  size_t chosen = 0;                        // index in `trials`
  int64_t calibration_images = 0;           // images that ranges and biases follow from
  // Images on which the trials were compared. They are no calibration images, except where there was only one image.
  int64_t held_out_images = 0;
  bool held_out_are_calibration_images = false;
  std::vector<std::string> layers_in_8_bits{};    // names of convolutions and linear layers
  std::map<std::string, std::string> in_float{};  // names of nodes that stay in float, and why
  std::vector<std::string> warnings{};            // what was unusual about the images: "all images are equal"
};

// Returns the report as lines for a console, with a line break at the end.
[[nodiscard]] std::string to_text(const QuantizationReport& report);

// A network that computes in 8 bits.
struct QuantizedModel {
  Graph graph{};                               // of the main output, its batch norms folded into convolutions
  std::shared_ptr<ParameterSet> parameters{};  // float values; those of 8-bit layers are q * scale exactly
  std::shared_ptr<const Quantization> quantization{};
  QuantizationReport report{};
  // Values in float, for `graph`, of a network that computes what the given one did: what noise is measured against
  // (layer_noise()). Null for a model from a file.
  std::shared_ptr<ParameterSet> float_parameters{};
};

// Quantizes the network of the graph's main output. `parameters` has all that the graph declares; it is not changed.
// `batches` are calibration images, [N, C, H, W] or the graph's other input shape, of any float dtype and in the
// normalization of training: some hundred images that the network was not trained on, or was, in any order. About a
// quarter of them, at most 64, is held out to compare methods; a single image serves for both.
//
// Throws kInvalidArgument for options out of range, no images, images of another shape or with NaN or infinite
// numbers, parameters that are not finite, and for a network whose every layer would stay in float (the message says
// why); kUnsupported for a graph of several inputs. Layers that cannot be quantized stay in float and are listed in
// Quantization::in_float. Constant images, a single image and activations that are zero for all images are no error:
// the report says so in `warnings`, and a layer whose input or output is always zero stays in float.
[[nodiscard]] QuantizedModel quantize(const Graph& graph, const ParameterSet& parameters,
                                      std::span<const at::Tensor> batches, const QuantizeOptions& options = {});

// How much of a layer's output is noise.
struct LayerNoise {
  std::string name{};          // of the node
  bool in_8_bits = false;      // the node is in Quantization::weights or its output in Quantization::activations
  double signal_to_noise = 0;  // in dB, as in QuantizationTrial, with the noise of all layers before it
  // The same with this layer alone in 8 bits: its input, weights and output are rounded, of the float network's exact
  // values. NaN for nodes in float.
  double own_signal_to_noise = 0;
};

// Compares the values of each node of the quantized network with those of the float network (model.float_parameters),
// on `batches` as quantize() takes them. Nodes are in the order of the graph, without inputs and without those that are
// computed together with the next one. Throws kInvalidArgument for a model without float_parameters, and for batches as
// quantize() does.
[[nodiscard]] std::vector<LayerNoise> layer_noise(const QuantizedModel& model, std::span<const at::Tensor> batches);

}  // namespace trainyard::nn
TRAINYARD_EXPORT_END
