// Which units compute in 8 bits.
#include <type_traits>

#include "trainyard/nn/cpu/plan/steps.h"

namespace trainyard::nn::cpu {

bool make_quantized_step(PlanBuilder& builder, const Unit& unit) {
  if (builder.context().quantization == nullptr) return false;
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  return std::visit(
      [&](const auto& op) {
        using Operation = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Operation, Convolution>) {
          if (builder.weight_scales(node.id) == nullptr) return false;
          make_quantized_convolution(builder, unit);
          return true;
        } else if constexpr (std::is_same_v<Operation, Linear>) {
          if (builder.weight_scales(node.id) == nullptr) return false;
          make_quantized_linear(builder, unit);
          return true;
        } else if constexpr (std::is_same_v<Operation, Add>) {
          return make_byte_sum(builder, unit);
        } else if constexpr (std::is_same_v<Operation, Activation>) {
          return make_byte_activation(builder, unit);
        } else if constexpr (std::is_same_v<Operation, Pool>) {
          return make_byte_pool(builder, unit);
        } else if constexpr (std::is_same_v<Operation, GlobalAveragePool>) {
          return make_byte_global_average(builder, unit);
        } else if constexpr (std::is_same_v<Operation, AdaptiveAveragePool>) {
          return op.size == Size2d(1) && make_byte_global_average(builder, unit);
        } else if constexpr (std::is_same_v<Operation, Multiply>) {
          return make_byte_scale_channels(builder, unit);
        } else if constexpr (std::is_same_v<Operation, Concat>) {
          return make_byte_concat(builder, unit);
        } else if constexpr (std::is_same_v<Operation, ChannelPad>) {
          return make_byte_channel_pad(builder, unit);
        } else if constexpr (std::is_same_v<Operation, ChannelSlice>) {
          return make_byte_channel_slice(builder, unit);
        } else if constexpr (std::is_same_v<Operation, ChannelShuffle>) {
          return make_byte_channel_shuffle(builder, unit);
        } else if constexpr (std::is_same_v<Operation, Flatten>) {
          return make_byte_flatten(builder, unit);
        } else if constexpr (std::is_same_v<Operation, LayerNorm>) {
          return make_byte_layer_norm(builder, unit);
        } else {
          return false;
        }
      },
      node.op);
}

}  // namespace trainyard::nn::cpu
