#include <type_traits>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/plan/steps.h"

namespace trainyard::nn::cpu {
namespace {

bool is_map(const Shape& shape) {
  return shape.size() == 3;
}

}  // namespace

UnitActivation unit_activation(Activation::Function function) {
  switch (function) {
    case Activation::Function::kRelu:
      return UnitActivation::kRelu;
    case Activation::Function::kRelu6:
      return UnitActivation::kRelu6;
    case Activation::Function::kSilu:
      return UnitActivation::kSilu;
    case Activation::Function::kHardSwish:
      return UnitActivation::kHardSwish;
    case Activation::Function::kHardSigmoid:
      return UnitActivation::kHardSigmoid;
    case Activation::Function::kSigmoid:
      return UnitActivation::kSigmoid;
    case Activation::Function::kGelu:
      return UnitActivation::kGelu;
    case Activation::Function::kTanh:
      return UnitActivation::kTanh;
  }
  throw core::Error(core::ErrorCode::kInternal, {.problem = "unknown activation"});
}

void make_step(PlanBuilder& builder, const Unit& unit) {
  if (make_quantized_step(builder, unit)) return;
  const Node& node = builder.graph().nodes[static_cast<size_t>(unit.head())];
  const Shape& input = builder.graph().nodes[static_cast<size_t>(node.inputs.at(0))].shape;
  std::visit(
      [&](const auto& op) {
        using Operation = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Operation, Convolution>) {
          make_convolution(builder, unit);
        } else if constexpr (std::is_same_v<Operation, BatchNorm>) {
          make_norm(builder, unit);
        } else if constexpr (std::is_same_v<Operation, Linear>) {
          make_linear(builder, unit);
        } else if constexpr (std::is_same_v<Operation, GlobalAveragePool>) {
          make_global_average(builder, unit);
        } else if constexpr (std::is_same_v<Operation, AdaptiveAveragePool>) {
          // To one pixel it is the mean over all.
          op.size == Size2d(1) ? make_global_average(builder, unit) : make_plain(builder, unit);
        } else if constexpr (std::is_same_v<Operation, Flatten>) {
          make_flatten(builder, unit);
        } else if constexpr (std::is_same_v<Operation, Pool>) {
          make_pool(builder, unit);
        } else if constexpr (std::is_same_v<Operation, ChannelPad>) {
          make_channel_pad(builder, unit);
        } else if constexpr (std::is_same_v<Operation, ChannelSlice>) {
          make_channel_slice(builder, unit);
        } else if constexpr (std::is_same_v<Operation, ChannelShuffle>) {
          make_channel_shuffle(builder, unit);
        } else if constexpr (std::is_same_v<Operation, LocalResponseNorm>) {
          make_local_response(builder, unit);
        } else if constexpr (std::is_same_v<Operation, LayerScale>) {
          make_layer_scale(builder, unit);
        } else if constexpr (std::is_same_v<Operation, Attention>) {
          make_attention(builder, unit);
        } else if constexpr (std::is_same_v<Operation, BoxRows>) {
          make_box_rows(builder, unit);
        } else {
          if constexpr (std::is_same_v<Operation, Dropout> || std::is_same_v<Operation, StochasticDepth>) {
            // In inference a vector is handed on, too.
            const bool hands_on = !builder.training() && !builder.is_input(builder.value_of(node.inputs[0]));
            if (hands_on) return make_random_scale(builder, unit);
          }
          if (!is_map(input) || !is_map(node.shape)) return make_plain(builder, unit);
          if constexpr (std::is_same_v<Operation, Add>) {
            make_sum(builder, unit);
          } else if constexpr (std::is_same_v<Operation, Activation>) {
            make_activation(builder, unit);
          } else if constexpr (std::is_same_v<Operation, LayerNorm>) {
            make_layer_norm(builder, unit);
          } else if constexpr (std::is_same_v<Operation, Concat>) {
            make_concat(builder, unit);
          } else if constexpr (std::is_same_v<Operation, Multiply>) {
            const Shape& factor = builder.graph().nodes[static_cast<size_t>(node.inputs[1])].shape;
            is_map(factor) ? make_plain(builder, unit) : make_scale_channels(builder, unit);
          } else if constexpr (std::is_same_v<Operation, Dropout> || std::is_same_v<Operation, StochasticDepth>) {
            make_random_scale(builder, unit);
          } else {
            make_plain(builder, unit);
          }
        }
      },
      node.op);
}

}  // namespace trainyard::nn::cpu
