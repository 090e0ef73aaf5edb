// Quantized models in files of weights: integers of 8 bits with their scales (docs/formats/quantization.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "trainyard/core/base/error.h"
#include "trainyard/formats/tensors/tensor_file.h"
#include "trainyard/nn/execution/parameter_set.h"
#include "trainyard/nn/graph/graph.h"
#include "trainyard/nn/graph/quantization.h"
#include "trainyard/nn/quantization/quantization_aware.h"

namespace trainyard::train {

// Writes all parameters and statistics of the graph as safetensors, atomically: the weights that the quantization names
// as integers with their scales (nn::quantize_weights()), all others in float32. `metadata` is added to {"format":
// "pt"}. Throws what nn::quantized_nodes() and nn::quantize_weights() throw, kIo and kNoSpace.
void save_quantized_weights(const std::string& path, const nn::Graph& graph, const nn::ParameterSet& set,
                            const nn::Quantization& quantization, std::map<std::string, std::string> metadata);

// Returns whether the file says that it holds a quantized model, or has tensors that only such files have.
[[nodiscard]] bool holds_quantized_weights(const formats::TensorFile& file);

// Reads the scales of the graph's nodes. Returns null for a file without any. Throws kCorruptData, naming the tensor,
// for weights in 8 bits without scales and scales without weights in 8 bits, scales of no node, of another shape or
// type, scales that are NaN, infinite, zero or negative, scales that do not fit together (nn::quantized_nodes()), and
// when scales that the file announces are missing; kUnsupported for a file of a later release. Reads no tensor before
// its shape is known to be the graph's.
[[nodiscard]] std::shared_ptr<const nn::Quantization> read_quantization(const formats::TensorFile& file,
                                                                        const nn::Graph& graph);

// Loads the file's weights into `set`, which is allocated for the graph, as load_weights() does: those in 8 bits
// multiplied by their scales. Throws what load_weights() throws, and kCorruptData for a weight of -128 and for a
// product that is not finite.
void load_quantized_weights(const formats::TensorFile& file, const nn::Graph& graph,
                            const nn::Quantization& quantization, nn::ParameterSet& set, int64_t num_classes);

// Returns the scales of a quantization-aware training's checkpoint, whose variables are entries of `weights`; empty: it
// has none. Throws damaged_checkpoint(), naming the entry and `where`, for numbers that are no scale and for a scale
// without a zero point.
[[nodiscard]] nn::TrainingScales read_training_scales(const core::StateReader& weights, const std::string& where);

// Returns nn::quantize_by_scales() of what a checkpoint holds. Throws damaged_checkpoint() for scales that are not the
// graph's or contradict each other.
[[nodiscard]] nn::QuantizedModel quantize_checkpoint(const nn::Graph& graph, const nn::ParameterSet& parameters,
                                                     const nn::TrainingScales& scales, const std::string& where);

// Returns whether a tensor of this name is a scale of a quantized model, where the graph has no such variable.
[[nodiscard]] bool is_name_of_scale(std::string_view name);

// Returns the error of a reader that computes in float, for the file of a quantized model.
[[nodiscard]] core::Error quantized_weights_error(const formats::TensorFile& file);

}  // namespace trainyard::train
