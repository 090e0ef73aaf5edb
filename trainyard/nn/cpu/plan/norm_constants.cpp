#include "trainyard/nn/cpu/plan/norm_constants.h"

#include <cmath>
#include <variant>

namespace trainyard::nn::cpu {

NormConstants norm_constants(const Node& node, const BuildContext& context) {
  const auto& op = std::get<BatchNorm>(node.op);
  const ParameterSet& set = *context.parameters;
  const auto parameter = [&](size_t index) { return set.value(context.parameter(node.parameters.at(index))); };
  const auto buffer = [&](size_t index) { return set.buffer(context.buffer(node.buffers.at(index))); };
  const at::Tensor bias = parameter(op.scale ? 1 : 0), mean = buffer(0), variance = buffer(1);
  const at::Tensor weight = op.scale ? parameter(0) : at::Tensor();
  const auto channels = static_cast<size_t>(bias.numel());
  NormConstants constants{std::vector<double>(channels), std::vector<double>(channels)};
  for (size_t c = 0; c < channels; ++c) {
    const double gamma = op.scale ? weight.const_data_ptr<float>()[c] : 1.0;
    const double factor = gamma / std::sqrt(variance.const_data_ptr<float>()[c] + op.epsilon);
    constants.factor[c] = factor;
    constants.shift[c] = bias.const_data_ptr<float>()[c] - mean.const_data_ptr<float>()[c] * factor;
  }
  return constants;
}

}  // namespace trainyard::nn::cpu
