#include "trainyard/nn/quantization/straight_through.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainyard/nn/quantization/rounding.h"

namespace trainyard::nn {
namespace {

constexpr int64_t kGrain = 32768;  // elements a thread at least
constexpr float kLargest = 255;

// Writes the rounded numbers, and which of them are inside the range.
template <typename T>
void round_elements(const T* x, int64_t count, const ActivationScale& scale, T* rounded, bool* inside) {
  const float inverse = 1 / scale.scale;  // in float, as all kernels multiply
  const float low = -static_cast<float>(scale.zero_point), high = kLargest - static_cast<float>(scale.zero_point);
  const auto factor = static_cast<T>(scale.scale);
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float steps = std::nearbyint(static_cast<float>(x[i]) * inverse);
      inside[i] = steps >= low && steps <= high;
      // In this order NaN stays.
      rounded[i] = static_cast<T>(std::min(std::max(steps, low), high)) * factor;
    }
  });
}

struct RoundActivations : torch::autograd::Function<RoundActivations> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& given, double scale,
                            int64_t zero_point) {
    const at::Tensor x = given.is_non_overlapping_and_dense() ? given : given.contiguous();
    const at::Tensor rounded = at::empty_like(x), inside = at::empty_like(x, x.options().dtype(at::kBool));
    const ActivationScale of{.scale = static_cast<float>(scale), .zero_point = static_cast<uint8_t>(zero_point)};
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "round_straight_through", [&] {
      round_elements(x.const_data_ptr<scalar_t>(), x.numel(), of, rounded.mutable_data_ptr<scalar_t>(),
                     inside.mutable_data_ptr<bool>());
    });
    context->save_for_backward({inside});
    return rounded;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * context->get_saved_variables()[0], at::Tensor(), at::Tensor()};
  }
};

struct RoundWeights : torch::autograd::Function<RoundWeights> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& weight) {
    return rounded_weights(weight, weight_scales(weight));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0]};
  }
};

}  // namespace

at::Tensor round_straight_through(const at::Tensor& x, const ActivationScale& scale) {
  return RoundActivations::apply(x, double{scale.scale}, int64_t{scale.zero_point});
}

at::Tensor round_weights_straight_through(const at::Tensor& weight) {
  return RoundWeights::apply(weight);
}

}  // namespace trainyard::nn
