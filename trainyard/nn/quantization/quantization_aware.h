// Quantization-aware training: a training whose forward computes with the numbers that the network has in 8 bits, so
// that its weights learn to live with the rounding (Jacob et al., "Quantization and training of neural networks for
// efficient integer-arithmetic-only inference", 2018).
//
//   BuildContext context{.mode = Mode::kTraining, .parameters = &set, .gradients = &sink};
//   auto executor = make_executor(kQuantizationAware, graph, context);   // declares what the graph needs, and scales
//   set.allocate();
//   ...                                                 // the weights of a trained network
//   find_training_scales(graph, set, batches);          // before the first forward
//   ...                                                 // a training as any other
//   QuantizedModel model = quantize_by_scales(graph, set, training_scales(set));
//
// - The graph and the names of its parameters are those of a training in float. A convolution and the batch norm behind
//   it are computed as one convolution, folded by the running statistics, which are constants (Krishnamoorthi,
//   "Quantizing deep convolutional networks for efficient inference: a whitepaper", 2018, section 3.2.2). Gradients
//   reach the weight, and the scale and shift of the batch norm. Other batch norms use their running statistics, too.
// - Weights are rounded with scales that follow from them in each step. The scales of activations are buffers of the
//   set, "<node>.activation_scale" and "<node>.activation_zero_point", [1] each, which find_training_scales() sets and
//   nothing changes. A scale of 0: the value stays in float.
// - Rounding is straight_through.h's. In inference mode the executor computes the same, so that evaluations during the
//   training say what the network in 8 bits will do. It computes in float on a CPU.
#pragma once

#include <map>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"
#include "trainyard/nn/quantization/quantized_model.h"

namespace trainyard::nn {

// The name of the executor.
inline constexpr const char* kQuantizationAware = "quantization_aware";

// Sets the scales of activations in a set that a quantization-aware executor of the graph has declared: those of
// quantize() with its method kPlain for the set's weights and these batches, which are as quantize() takes them.
// Returns its report. Throws what quantize() throws.
QuantizationReport find_training_scales(const Graph& graph, ParameterSet& set, std::span<const at::Tensor> batches);

// The scales of activations by the name of their node; 0: the value stays in float.
using TrainingScales = std::map<std::string, ActivationScale>;

// Returns the scales in a set. Empty: it has none. Throws kInvalidArgument, naming the node, for numbers that are no
// scale.
[[nodiscard]] TrainingScales training_scales(const ParameterSet& set);

// Returns the names of the buffers that hold the scale and the zero point of a node's output.
[[nodiscard]] std::string training_scale_name(const std::string& node);
[[nodiscard]] std::string training_zero_point_name(const std::string& node);
// Returns the name of the node whose scale or zero point a buffer of this name is; empty: the buffer is another one.
[[nodiscard]] std::string scaled_node(const std::string& buffer);

// Returns the scale that these numbers of two buffers are. Throws kInvalidArgument, naming the node, for others.
[[nodiscard]] ActivationScale training_scale(const std::string& node, double scale, double zero_point);

// Returns the network of the graph's main output that computes in 8 bits with these scales: what the training's forward
// computed, up to sums in float. `parameters` has all that the graph declares; it is not changed. The report has no
// trials. Scales of layers that with_dropout() and with_stochastic_depth() (nn/graph/training_options.h) had put into
// the graph for the training are left out where the graph lacks these layers. The graph may be for another image size
// than the training's: an adaptive average pool that only one of the two has keeps the scale of its input, or leaves
// the layer behind it in float. Throws kNotFound for a scale of another node that the folded graph lacks, and
// kInvalidArgument for no scale, for scales that contradict each other, and for parameters that are not finite.
[[nodiscard]] QuantizedModel quantize_by_scales(const Graph& graph, const ParameterSet& parameters,
                                                const TrainingScales& scales);

}  // namespace trainyard::nn
