// The attributes of each operation by name, once for writing and reading. `fields` is called with a name and a
// reference to each attribute; fields.choice() with the texts of an enum's values, in their order.
#pragma once

#include <array>
#include <string_view>

#include "trainyard/nn/graph/ops.h"

namespace trainyard::nn {

inline constexpr std::array<std::string_view, 10> kInitializerKinds = {
    "constant",           "normal",     "truncated_normal", "uniform",
    "variance_scaling",   "he_normal",  "he_uniform",       "he_uniform_identity",
    "relative_positions", "from_module"};
inline constexpr std::array<std::string_view, 3> kFans = {"in", "out", "average"};
inline constexpr std::array<std::string_view, 2> kPaddingKinds = {"explicit", "same"};
inline constexpr std::array<std::string_view, 3> kConvolutionForms = {"convolution", "linear", "joined_linear"};
inline constexpr std::array<std::string_view, 8> kActivationFunctions = {
    "relu", "relu6", "silu", "hard_swish", "hard_sigmoid", "sigmoid", "gelu", "tanh"};
inline constexpr std::array<std::string_view, 2> kPoolKinds = {"max", "average"};
inline constexpr std::array<std::string_view, 2> kUpsampleKinds = {"nearest", "bilinear"};
inline constexpr std::array<std::string_view, 2> kBoxRowsOrders = {"by_box", "by_pixel"};

template <typename Fields>
void visit_fields(Fields& fields, Input& op) {
  fields("tensor", op.name);
}

template <typename Fields>
void visit_fields(Fields& fields, Convolution& op) {
  fields("out_channels", op.out_channels);
  fields("kernel", op.kernel);
  fields("stride", op.stride);
  fields("padding", op.padding);
  fields("dilation", op.dilation);
  fields("groups", op.groups);
  fields("bias", op.bias);
  fields("weight_init", op.weight_init);
  fields("bias_init", op.bias_init);
  fields.choice("form", op.form, kConvolutionForms);
}

template <typename Fields>
void visit_fields(Fields& fields, TransposedConvolution& op) {
  fields("out_channels", op.out_channels);
  fields("kernel", op.kernel);
  fields("stride", op.stride);
  fields("padding", op.padding);
  fields("output_padding", op.output_padding);
  fields("dilation", op.dilation);
  fields("groups", op.groups);
  fields("bias", op.bias);
  fields("weight_init", op.weight_init);
  fields("bias_init", op.bias_init);
}

template <typename Fields>
void visit_fields(Fields& fields, Upsample& op) {
  fields.choice("kind", op.kind, kUpsampleKinds);
  fields("factor", op.factor);
}

template <typename Fields>
void visit_fields(Fields& fields, BatchNorm& op) {
  fields("epsilon", op.epsilon);
  fields("decay", op.decay);
  fields("scale", op.scale);
  fields("scale_init", op.scale_init);
  fields.optional("biased_running_variance", op.biased_running_variance);
}

template <typename Fields>
void visit_fields(Fields& fields, LayerNorm& op) {
  fields("epsilon", op.epsilon);
}

template <typename Fields>
void visit_fields(Fields& fields, LayerScale& op) {
  fields("init", op.init);
}

template <typename Fields>
void visit_fields(Fields& fields, Activation& op) {
  fields.choice("function", op.function, kActivationFunctions);
}

template <typename Fields>
void visit_fields(Fields& fields, Pool& op) {
  fields.choice("kind", op.kind, kPoolKinds);
  fields("kernel", op.kernel);
  fields("stride", op.stride);
  fields("padding", op.padding);
  fields("ceil_mode", op.ceil_mode);
  fields("count_padding", op.count_padding);
}

template <typename Fields>
void visit_fields(Fields& fields, AdaptiveAveragePool& op) {
  fields("size", op.size);
}

template <typename Fields>
void visit_fields(Fields& fields, Linear& op) {
  fields("out_features", op.out_features);
  fields("bias", op.bias);
  fields("weight_init", op.weight_init);
  fields("bias_init", op.bias_init);
}

template <typename Fields>
void visit_fields(Fields& fields, ChannelPad& op) {
  fields("before", op.before);
  fields("after", op.after);
}

template <typename Fields>
void visit_fields(Fields& fields, SpatialPad& op) {
  fields("top", op.top);
  fields("bottom", op.bottom);
  fields("left", op.left);
  fields("right", op.right);
}

template <typename Fields>
void visit_fields(Fields& fields, ChannelSlice& op) {
  fields("begin", op.begin);
  fields("count", op.count);
}

template <typename Fields>
void visit_fields(Fields& fields, ChannelShuffle& op) {
  fields("groups", op.groups);
}

template <typename Fields>
void visit_fields(Fields& fields, Dropout& op) {
  fields("drop", op.drop);
}

template <typename Fields>
void visit_fields(Fields& fields, StochasticDepth& op) {
  fields("drop", op.drop);
}

template <typename Fields>
void visit_fields(Fields& fields, LocalResponseNorm& op) {
  fields("radius", op.radius);
  fields("bias", op.bias);
  fields("alpha", op.alpha);
  fields("beta", op.beta);
}

template <typename Fields>
void visit_fields(Fields& fields, ClassToken& op) {
  fields("init", op.init);
}

template <typename Fields>
void visit_fields(Fields& fields, PositionEmbedding& op) {
  fields("init", op.init);
}

template <typename Fields>
void visit_fields(Fields& fields, Attention& op) {
  fields("heads", op.heads);
  fields("window", op.window);
  fields("shift", op.shift);
  fields("queries", op.queries);
}

template <typename Fields>
void visit_fields(Fields& fields, L2Norm& op) {
  fields("epsilon", op.epsilon);
  fields("init", op.init);
}

template <typename Fields>
void visit_fields(Fields& fields, BoxRows& op) {
  fields("coordinates", op.coordinates);
  fields("classes", op.classes);
  fields.choice("order", op.order, kBoxRowsOrders);
}

template <typename Fields>
void visit_fields(Fields&, GlobalAveragePool&) {}
template <typename Fields>
void visit_fields(Fields&, Flatten&) {}
template <typename Fields>
void visit_fields(Fields&, Add&) {}
template <typename Fields>
void visit_fields(Fields&, Multiply&) {}
template <typename Fields>
void visit_fields(Fields&, Concat&) {}
template <typename Fields>
void visit_fields(Fields&, PatchMerge&) {}
template <typename Fields>
void visit_fields(Fields&, Foreign&) {}  // writers and readers reject it before

}  // namespace trainyard::nn
