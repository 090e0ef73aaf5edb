#include "trainyard/nn/cpu/plan/quantized_weights.h"

#include "trainyard/nn/cpu/plan/norm_constants.h"
#include "trainyard/nn/execution/quantized_numbers.h"

namespace trainyard::nn::cpu {

QuantizedWeights::QuantizedWeights(const PlanBuilder& builder, const Node& node, const Node* norm, float input_scale,
                                   int64_t padded, int64_t packed_bytes)
    : context_(builder.context()),
      node_(node),
      norm_(norm),
      scales_(*builder.weight_scales(node.id)),
      input_scale_(input_scale),
      offsets_(static_cast<size_t>(padded)),
      factors_(static_cast<size_t>(padded)),
      bias_(static_cast<size_t>(padded)),
      packed_(packed_bytes) {}

at::Tensor QuantizedWeights::round() {
  const ParameterSet& set = *context_.parameters;
  at::Tensor plain = quantize_weights(node_, set.value(context_.parameter(node_.parameters.at(0))), scales_);
  for (size_t c = 0; c < scales_.size(); ++c) factors_[c] = input_scale_ * scales_[c];
  std::fill(bias_.begin(), bias_.end(), 0.0F);
  if (node_.parameters.size() > 1) {
    const at::Tensor bias = set.value(context_.parameter(node_.parameters[1]));
    check_quantized_bias(node_, bias);
    std::copy_n(bias.const_data_ptr<float>(), scales_.size(), bias_.begin());
  }
  if (norm_ == nullptr) return plain;
  const NormConstants norm = norm_constants(*norm_, context_);
  for (size_t c = 0; c < scales_.size(); ++c) {
    factors_[c] = static_cast<float>(double{input_scale_} * scales_[c] * norm.factor[c]);
    bias_[c] = static_cast<float>(bias_[c] * norm.factor[c] + norm.shift[c]);
  }
  return plain;
}

}  // namespace trainyard::nn::cpu
