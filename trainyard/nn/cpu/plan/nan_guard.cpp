#include "trainyard/nn/cpu/plan/nan_guard.h"

#include <algorithm>
#include <cmath>

#include "trainyard/nn/cpu/elementwise/magnitude.h"
#include "trainyard/nn/cpu/plan/exact_convolution.h"
#include "trainyard/nn/cpu/simd/isa.h"
#include "trainyard/nn/cpu/simd/kernels.h"

namespace trainyard::nn::cpu {
namespace {

// Bounds up to this are far enough from the largest float, 2^128. The transforms of a Winograd convolution hold some
// hundred times as much as its result.
constexpr float kHarmless = 0x1p96F;

MapShape input_map(const ConvolutionShape& s) {
  return {s.batch, s.in_channels, s.in_height, s.in_width, channel_block()};
}
MapShape output_map(const ConvolutionShape& s) {
  return {s.batch, s.out_channels, s.out_height, s.out_width, channel_block()};
}

bool has_pads(const MapShape& map) {
  return map.channels != map.padded_channels();
}

float bound_of(const Run& run, ValueId id) {
  return id < 0 ? 0 : run.bounds[static_cast<size_t>(id)];
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

float bound_behind(float bound, UnitActivation activation) {
  if (!std::isfinite(bound)) return kUnbounded;
  return activation == UnitActivation::kRelu6 ? std::min(bound, 6.0F) : std::max(bound, least_bound(activation));
}

NanGuard::NanGuard(const ConvolutionShape& shape, const ConvolutionKernel::Options& options,
                   const ConvolutionKernel& kernel)
    : shape_(shape),
      options_(options),
      hides_nan_(kernel.hides_nan()),
      wants_finite_(kernel.mixes_groups() || kernel.multiplies_pairs() || has_pads(output_map(shape))) {}

void NanGuard::set_weights(const float* weight, const float* bias) {
  const int64_t taps = shape_.in_channels / shape_.groups * shape_.kernel_height * shape_.kernel_width;
  largest_row_sum({.rows = shape_.out_channels, .columns = taps, .values = weight, .result = &row_sum_});
  offset_ = bias == nullptr ? 0 : largest_of(bias, shape_.out_channels, DataType::kFloat);
}

float NanGuard::sum_bound(const Run& run, ValueId source, ValueId residual) const {
  return (bound_of(run, source) * row_sum_ + offset_ + bound_of(run, residual)) * kRoundingUp;
}

// Comparisons with NaN are false: what is not a number is not harmless. Kernels that mix results add inputs, and add
// weights, before they multiply: small ones on the other side do not keep these sums from overflow.
bool NanGuard::is_harmless(const Run& run, const Operands& operands) const {
  const float source = bound_of(run, operands.source);
  return (!wants_finite_ || source <= kHarmless) &&
         (!hides_nan_ || (source <= kHarmless && row_sum_ <= kHarmless &&
                          sum_bound(run, operands.source, operands.residual) <= kHarmless));
}

bool NanGuard::is_safe(Run& run, const Operands& operands) const {
  if (is_harmless(run, operands)) return true;
  measure_source(run, operands.source, operands.source_data);
  if (operands.residual >= 0 && !is_harmless(run, operands)) {
    run.bounds[static_cast<size_t>(operands.residual)] =
        largest_of(operands.residual_data, output_map(shape_).elements(), shape_.dtype);
  }
  return is_harmless(run, operands);
}

bool NanGuard::is_source_finite(Run& run, ValueId source, const void* source_data) const {
  if (bound_of(run, source) <= kHarmless) return true;
  measure_source(run, source, source_data);
  return std::isfinite(bound_of(run, source));
}

void NanGuard::measure_source(Run& run, ValueId source, const void* source_data) const {
  const MapShape map = input_map(shape_);
  const int64_t plain = map.batch * map.channels * map.pixels();
  run.bounds[static_cast<size_t>(source)] =
      largest_of(source_data, shape_.plain_input ? plain : map.elements(), shape_.dtype);
}

void NanGuard::run_without_activation(const float* weight, const float* bias, const void* source, void* output) const {
  convolve_exactly(shape_, options_, weight, bias, source, output);
  activation_forward({.shape = output_map(shape_),
                      .dtype = shape_.dtype,
                      .activation = UnitActivation::kNone,
                      .input = output,
                      .output = output});
}

float NanGuard::bound(const Run& run, ValueId source, ValueId residual, UnitActivation activation) const {
  return bound_behind(sum_bound(run, source, residual), activation);
}

}  // namespace trainyard::nn::cpu
