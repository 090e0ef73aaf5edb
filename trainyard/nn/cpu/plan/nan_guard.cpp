#include "trainyard/nn/cpu/plan/nan_guard.h"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>

#include "trainyard/core/base/error.h"
#include "trainyard/nn/cpu/kernels/isa.h"
#include "trainyard/nn/cpu/kernels/magnitude.h"
#include "trainyard/nn/cpu/plan/group_by_group.h"

namespace trainyard::nn::cpu {
namespace {

// The largest float is 2^128. The transforms of a Winograd convolution hold some hundred times as much as its result.
constexpr float kHarmless = 0x1p96F;

int64_t elements(const ConvolutionShape& s, int64_t channels, int64_t height, int64_t width, bool plain) {
  const int64_t block = channel_block();
  return s.batch * (plain ? channels : (channels + block - 1) / block * block) * height * width;
}

float bound_of(const Run& run, ValueId id) {
  return id < 0 ? 0 : run.bounds[static_cast<size_t>(id)];
}

at::Tensor bytes(int64_t count) {
  return at::empty({std::max<int64_t>(count, 1)}, at::kByte);
}

}  // namespace

float largest_of(const void* values, int64_t count, DataType dtype) {
  float largest = kUnbounded;
  largest_magnitude({.count = count, .dtype = dtype, .values = values, .result = &largest});
  return largest;
}

float least_bound(UnitActivation activation) {
  return activation == UnitActivation::kSigmoid || activation == UnitActivation::kHardSigmoid ? 1.0F : 0.0F;
}

NanGuard::NanGuard(const ConvolutionShape& shape, const ConvolutionKernel::Options& options,
                   const ConvolutionKernel& kernel)
    : shape_(shape), options_(options), hides_nan_(kernel.hides_nan()), mixes_groups_(kernel.mixes_groups()) {}

void NanGuard::set_weights(const float* weight, const float* bias) {
  const int64_t taps = shape_.in_channels / shape_.groups * shape_.kernel_height * shape_.kernel_width;
  largest_row_sum({.rows = shape_.out_channels, .columns = taps, .values = weight, .result = &row_sum_});
  offset_ = bias == nullptr ? 0 : largest_of(bias, shape_.out_channels, DataType::kFloat);
}

float NanGuard::sum_bound(const Run& run, ValueId source, ValueId residual) const {
  return (bound_of(run, source) * row_sum_ + offset_ + bound_of(run, residual)) * kRoundingUp;
}

// Comparisons with NaN are false: what is not a number is not harmless.
bool NanGuard::is_harmless(const Run& run, const Operands& operands) const {
  return (!mixes_groups_ || bound_of(run, operands.source) <= kHarmless) &&
         (!hides_nan_ || sum_bound(run, operands.source, operands.residual) <= kHarmless);
}

bool NanGuard::is_safe(Run& run, const Operands& operands) const {
  if (is_harmless(run, operands)) return true;
  const ConvolutionShape& s = shape_;
  run.bounds[static_cast<size_t>(operands.source)] =
      largest_of(operands.source_data, elements(s, s.in_channels, s.in_height, s.in_width, s.plain_input), s.dtype);
  if (operands.residual >= 0 && !is_harmless(run, operands)) {
    run.bounds[static_cast<size_t>(operands.residual)] =
        largest_of(operands.residual_data, elements(s, s.out_channels, s.out_height, s.out_width, false), s.dtype);
  }
  return is_harmless(run, operands);
}

void NanGuard::run_without_activation(const float* weight, const float* bias, const void* source, void* output) const {
  if (mixes_groups_) return convolve_groups(shape_, options_.sum, weight, bias, source, output);
  ConvolutionKernel::Options options = options_;
  options.algorithm = ConvolutionAlgorithm::kDirect;
  options.activation = UnitActivation::kNone;
  const std::unique_ptr<ConvolutionKernel> kernel = ConvolutionKernel::make(shape_, options);
  if (kernel == nullptr) {
    throw core::Error(core::ErrorCode::kInternal, {.problem = "no kernel for a convolution without its activation"});
  }
  const at::Tensor packed = bytes(kernel->weights_bytes()), scratch = bytes(kernel->scratch_bytes());
  kernel->pack(weight, packed.data_ptr());
  kernel->forward(source, packed.data_ptr(), bias, output, scratch.data_ptr());
}

float NanGuard::bound(const Run& run, ValueId source, ValueId residual, UnitActivation activation) const {
  const float bound = sum_bound(run, source, residual);
  if (!std::isfinite(bound)) return kUnbounded;
  return activation == UnitActivation::kRelu6 ? std::min(bound, 6.0F) : std::max(bound, least_bound(activation));
}

}  // namespace trainyard::nn::cpu
