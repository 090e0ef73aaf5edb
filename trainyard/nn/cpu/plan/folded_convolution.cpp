#include "trainyard/nn/cpu/plan/folded_convolution.h"

#include <variant>

#include <ATen/ops/empty.h>

#include "trainyard/nn/cpu/plan/norm_constants.h"

namespace trainyard::nn::cpu {

FoldedConvolution fold_convolution(const Node& convolution, const Node* norm, const BuildContext& context) {
  const auto& op = std::get<Convolution>(convolution.op);
  const ParameterSet& set = *context.parameters;
  FoldedConvolution folded{.weight = set.value(context.parameter(convolution.parameters.at(0))),
                           .bias = std::vector<float>(static_cast<size_t>(op.out_channels))};
  if (op.bias) {
    const at::Tensor bias = set.value(context.parameter(convolution.parameters.at(1)));
    for (size_t c = 0; c < folded.bias.size(); ++c) folded.bias[c] = bias.const_data_ptr<float>()[c];
  }
  if (norm == nullptr) return folded;
  const NormConstants constants = norm_constants(*norm, context);
  const int64_t taps = folded.weight.numel() / op.out_channels;
  const auto* from = folded.weight.const_data_ptr<float>();
  at::Tensor scaled = at::empty(folded.weight.sizes(), at::kFloat);
  auto* to = scaled.mutable_data_ptr<float>();
  for (size_t c = 0; c < folded.bias.size(); ++c) {
    for (int64_t i = 0; i < taps; ++i) *to++ = static_cast<float>(*from++ * constants.factor[c]);
    folded.bias[c] = static_cast<float>(folded.bias[c] * constants.factor[c] + constants.shift[c]);
  }
  folded.weight = scaled;
  return folded;
}

}  // namespace trainyard::nn::cpu
