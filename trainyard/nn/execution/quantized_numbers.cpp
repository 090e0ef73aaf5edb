#include "trainyard/nn/execution/quantized_numbers.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/round.h>
#include <fmt/core.h>

#include "trainyard/core/base/error.h"

namespace trainyard::nn {

at::Tensor fake_quantize(const at::Tensor& x, const ActivationScale& scale) {
  const double zero = scale.zero_point;
  const float inverse = 1 / scale.scale;  // in float, as all kernels multiply
  at::Tensor steps = at::round(x.to(at::kFloat) * inverse);
  steps = at::nan_to_num(steps, 0.0).clamp(-zero, 255 - zero);
  return (steps.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat) * double{scale.scale})
      .to(x.scalar_type());
}

at::Tensor quantize_weights(const Node& node, const at::Tensor& weight, const std::vector<float>& scales) {
  constexpr double kMost = 127;
  const at::Tensor given = weight.to(at::kFloat).contiguous();
  at::Tensor result = at::empty(given.sizes(), at::kChar);
  const auto* from = given.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<int8_t>();
  const int64_t taps = given.numel() / given.size(0);
  for (size_t channel = 0; channel < scales.size(); ++channel) {
    for (int64_t i = 0; i < taps; ++i, ++from, ++to) {
      const double rounded = std::nearbyint(double{*from} / scales[channel]);
      if (!(std::abs(rounded) <= kMost)) {
        throw core::Error(
            core::ErrorCode::kInvalidArgument,
            {.problem = "a weight does not fit the 8 bits of its scale",
             .where = fmt::format("{}, output channel {}", node.name, channel),
             .expected = fmt::format("at most {} * {}", kMost, scales[channel]),
             .actual = fmt::format("{}", *from),
             .remedy = "quantize the model again: its weights are not those that the scales were made for"});
      }
      *to = static_cast<int8_t>(rounded);
    }
  }
  return result;
}

void check_quantized_bias(const Node& node, const at::Tensor& bias) {
  const at::Tensor given = bias.to(at::kFloat).contiguous();
  const auto* const values = given.const_data_ptr<float>();
  for (int64_t i = 0; i < given.numel(); ++i) {
    if (std::isfinite(values[i])) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      {.problem = "a bias of a layer in 8 bits is not finite",
                       .where = fmt::format("{}, output channel {}", node.name, i),
                       .actual = fmt::format("{}", values[i]),
                       .remedy = "find the run or the file that these weights come from: they are damaged"});
  }
}

}  // namespace trainyard::nn
