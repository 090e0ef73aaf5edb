// The ONNX form of each operation: one overload of onnx_form() per operation. It adds operators to the builder and
// returns the value of the node's output. An operation without an overload does not compile.
#pragma once

#include <string>

#include "trainyard/nn/export/onnx_node_builder.h"

namespace trainyard::nn {

std::string onnx_form(const Input& op, OnnxNodeBuilder& b);
std::string onnx_form(const Convolution& op, OnnxNodeBuilder& b);
std::string onnx_form(const BatchNorm& op, OnnxNodeBuilder& b);
std::string onnx_form(const Activation& op, OnnxNodeBuilder& b);
std::string onnx_form(const Pool& op, OnnxNodeBuilder& b);
std::string onnx_form(const GlobalAveragePool& op, OnnxNodeBuilder& b);
std::string onnx_form(const AdaptiveAveragePool& op, OnnxNodeBuilder& b);
std::string onnx_form(const Linear& op, OnnxNodeBuilder& b);
std::string onnx_form(const Flatten& op, OnnxNodeBuilder& b);
std::string onnx_form(const Add& op, OnnxNodeBuilder& b);
std::string onnx_form(const Multiply& op, OnnxNodeBuilder& b);
std::string onnx_form(const Concat& op, OnnxNodeBuilder& b);
std::string onnx_form(const ChannelPad& op, OnnxNodeBuilder& b);
std::string onnx_form(const SpatialPad& op, OnnxNodeBuilder& b);
std::string onnx_form(const ChannelSlice& op, OnnxNodeBuilder& b);
std::string onnx_form(const ChannelShuffle& op, OnnxNodeBuilder& b);
std::string onnx_form(const Dropout& op, OnnxNodeBuilder& b);
std::string onnx_form(const StochasticDepth& op, OnnxNodeBuilder& b);
std::string onnx_form(const LocalResponseNorm& op, OnnxNodeBuilder& b);
std::string onnx_form(const LayerNorm& op, OnnxNodeBuilder& b);
std::string onnx_form(const LayerScale& op, OnnxNodeBuilder& b);
std::string onnx_form(const ClassToken& op, OnnxNodeBuilder& b);
std::string onnx_form(const PositionEmbedding& op, OnnxNodeBuilder& b);
std::string onnx_form(const Attention& op, OnnxNodeBuilder& b);
std::string onnx_form(const PatchMerge& op, OnnxNodeBuilder& b);
std::string onnx_form(const TransposedConvolution& op, OnnxNodeBuilder& b);
std::string onnx_form(const Upsample& op, OnnxNodeBuilder& b);
std::string onnx_form(const L2Norm& op, OnnxNodeBuilder& b);
std::string onnx_form(const BoxRows& op, OnnxNodeBuilder& b);
// Throws kUnsupported, because it is not known what such a module computes.
std::string onnx_form(const Foreign& op, OnnxNodeBuilder& b);

}  // namespace trainyard::nn
