#include <fmt/core.h>

#include "trainyard/core/base/overloaded.h"
#include "trainyard/nn/graph/graph.h"

namespace trainyard::nn {
namespace {

std::string_view function_name(Activation::Function function) {
  switch (function) {
    case Activation::Function::kRelu:
      return "relu";
    case Activation::Function::kRelu6:
      return "relu6";
    case Activation::Function::kSilu:
      return "silu";
    case Activation::Function::kHardSwish:
      return "hard_swish";
    case Activation::Function::kHardSigmoid:
      return "hard_sigmoid";
    case Activation::Function::kSigmoid:
      return "sigmoid";
    case Activation::Function::kGelu:
      return "gelu";
    case Activation::Function::kTanh:
      return "tanh";
  }
  return "unknown";
}

// "2", or "2x1" where the two differ.
std::string both(Size2d size) {
  return size.height == size.width ? fmt::format("{}", size.height) : fmt::format("{}x{}", size.height, size.width);
}

std::string padding_text(const Padding& padding) {
  if (padding.kind == Padding::Kind::kSame) return ", same";
  if (padding == Padding::valid()) return "";
  if (padding == Padding::all(padding.top)) return fmt::format(", pad {}", padding.top);
  if (padding == Padding::symmetric(padding.top, padding.left)) {
    return fmt::format(", pad {}x{}", padding.top, padding.left);
  }
  return fmt::format(", pad {}+{}x{}+{}", padding.top, padding.bottom, padding.left, padding.right);
}

// "7x7 / 2, pad 3"
std::string window_text(Size2d kernel, Size2d stride, const Padding& padding) {
  std::string text = fmt::format("{}x{}", kernel.height, kernel.width);
  if (stride != Size2d{1}) text += " / " + both(stride);
  return text + padding_text(padding);
}

}  // namespace

std::string_view Node::kind() const {
  return std::visit(core::Overloaded{
                        [](const Input&) { return "input"; },
                        [](const Convolution&) { return "convolution"; },
                        [](const BatchNorm&) { return "batch_norm"; },
                        [](const Activation&) { return "activation"; },
                        [](const Pool& pool) { return pool.kind == Pool::Kind::kMax ? "max_pool" : "average_pool"; },
                        [](const GlobalAveragePool&) { return "global_average_pool"; },
                        [](const AdaptiveAveragePool&) { return "adaptive_average_pool"; },
                        [](const Linear&) { return "linear"; },
                        [](const Flatten&) { return "flatten"; },
                        [](const Add&) { return "add"; },
                        [](const Multiply&) { return "multiply"; },
                        [](const Concat&) { return "concat"; },
                        [](const ChannelPad&) { return "channel_pad"; },
                        [](const SpatialPad&) { return "spatial_pad"; },
                        [](const ChannelSlice&) { return "channel_slice"; },
                        [](const ChannelShuffle&) { return "channel_shuffle"; },
                        [](const Dropout&) { return "dropout"; },
                        [](const StochasticDepth&) { return "stochastic_depth"; },
                        [](const LocalResponseNorm&) { return "local_response_norm"; },
                        [](const LayerNorm&) { return "layer_norm"; },
                        [](const LayerScale&) { return "layer_scale"; },
                        [](const ClassToken&) { return "class_token"; },
                        [](const PositionEmbedding&) { return "position_embedding"; },
                        [](const Attention&) { return "attention"; },
                        [](const PatchMerge&) { return "patch_merge"; },
                        [](const TransposedConvolution&) { return "transposed_convolution"; },
                        [](const Upsample&) { return "upsample"; },
                        [](const L2Norm&) { return "l2_norm"; },
                        [](const BoxRows&) { return "box_rows"; },
                        [](const Foreign&) { return "foreign"; },
                    },
                    op);
}

std::string Node::description() const {
  return std::visit(
      core::Overloaded{
          [](const Convolution& convolution) {
            std::string text = fmt::format("{} x ", convolution.out_channels) +
                               window_text(convolution.kernel, convolution.stride, convolution.padding);
            if (convolution.dilation != Size2d{1}) text += ", dilation " + both(convolution.dilation);
            if (convolution.groups != 1) text += fmt::format(", groups {}", convolution.groups);
            if (convolution.form != Convolution::Form::kConvolution) text += ", linear";
            if (convolution.bias) text += ", bias";
            return text;
          },
          [](const BatchNorm& norm) {
            return fmt::format("epsilon {}, decay {}{}{}", norm.epsilon, norm.decay, norm.scale ? "" : ", no scale",
                               norm.biased_running_variance ? ", biased running variance" : "");
          },
          [](const Activation& activation) { return std::string(function_name(activation.function)); },
          [](const Pool& pool) {
            std::string text = window_text(pool.kernel, pool.stride, pool.padding);
            if (pool.ceil_mode) text += ", ceil";
            if (pool.count_padding) text += ", padding counted";
            return text;
          },
          [](const AdaptiveAveragePool& pool) { return fmt::format("to {}x{}", pool.size.height, pool.size.width); },
          [](const Linear& linear) { return fmt::format("{}{}", linear.out_features, linear.bias ? ", bias" : ""); },
          [](const ChannelPad& pad) { return fmt::format("{} + {}", pad.before, pad.after); },
          [](const SpatialPad& pad) {
            return fmt::format("{} + {} rows, {} + {} columns", pad.top, pad.bottom, pad.left, pad.right);
          },
          [](const ChannelSlice& slice) { return fmt::format("{} from {}", slice.count, slice.begin); },
          [](const ChannelShuffle& shuffle) { return fmt::format("groups {}", shuffle.groups); },
          [](const Dropout& dropout) { return fmt::format("drop {}", dropout.drop); },
          [](const StochasticDepth& depth) { return fmt::format("drop {}", depth.drop); },
          [](const LocalResponseNorm& norm) {
            return fmt::format("radius {}, bias {}, alpha {}, beta {}", norm.radius, norm.bias, norm.alpha, norm.beta);
          },
          [](const LayerNorm& norm) { return fmt::format("epsilon {}", norm.epsilon); },
          [](const Attention& attention) {
            std::string text = fmt::format("{} heads", attention.heads);
            if (attention.window > 0) text += fmt::format(", windows {0}x{0}", attention.window);
            if (attention.shift > 0) text += fmt::format(", shift {}", attention.shift);
            if (attention.queries > 0) text += fmt::format(", {} queries", attention.queries);
            return text;
          },
          [](const TransposedConvolution& convolution) {
            const Padding padding = Padding::symmetric(convolution.padding.height, convolution.padding.width);
            std::string text = fmt::format("{} x ", convolution.out_channels) +
                               window_text(convolution.kernel, convolution.stride, padding);
            if (convolution.output_padding != Size2d{0}) text += ", output pad " + both(convolution.output_padding);
            if (convolution.dilation != Size2d{1}) text += ", dilation " + both(convolution.dilation);
            if (convolution.groups != 1) text += fmt::format(", groups {}", convolution.groups);
            if (convolution.bias) text += ", bias";
            return text;
          },
          [](const Upsample& upsample) {
            return fmt::format("{} x {}", upsample.kind == Upsample::Kind::kNearest ? "nearest" : "bilinear",
                               upsample.factor);
          },
          [](const L2Norm& norm) { return fmt::format("epsilon {}", norm.epsilon); },
          [](const BoxRows& rows) {
            return fmt::format("{} + {}, {}", rows.coordinates, rows.classes,
                               rows.order == BoxRows::Order::kByBox ? "by box" : "by pixel");
          },
          [](const Foreign& foreign) { return foreign.description; },
          [](const auto&) { return std::string(); },
      },
      op);
}

}  // namespace trainyard::nn
