#include "trainyard/nn/cpu/kernels/activation.h"
#include "trainyard/nn/cpu/kernels/affine.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename T, UnitActivation kind, bool has_residual, bool has_mask>
void apply(const Affine& a, const Span& span) {
  const T* const input = static_cast<const T*>(a.input);
  const T* const residual = static_cast<const T*>(a.residual);
  T* const output = static_cast<T*>(a.output);
  uint8_t* const mask = a.mask;
  const Floats scale = load(a.scale), shift = load(a.shift);
  const Bits lanes = a.lanes;
  each_pixel(
      span, [&]<int pixels>(int64_t at) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int k = 0; k < pixels; ++k) {
          const int64_t here = at + k * kLanes;
          Floats u = multiply_add(load(input + here), scale, shift);
          if constexpr (has_residual) u += load(residual + here);
          if constexpr (has_mask) store_bits(mask, here, positive(u));
          const Floats value = activate<kind>(u);
          store(output + here, keeps_zero(kind) ? value : keep(value, lanes));
        }
      });
}

template <typename T>
ApplyAffine choose(UnitActivation activation, bool residual, bool mask) {
  if (mask) return apply<T, UnitActivation::kRelu, true, true>;
  ApplyAffine chosen = nullptr;
  with_activation(activation, [&](auto kind) {
    chosen = residual ? apply<T, kind.kValue, true, false> : apply<T, kind.kValue, false, false>;
  });
  return chosen;
}

}  // namespace

ApplyAffine choose_affine(DataType dtype, UnitActivation activation, bool residual, bool mask) {
  return dtype == DataType::kFloat ? choose<float>(activation, residual, mask)
                                   : choose<Bfloat16>(activation, residual, mask);
}

void scale_shift(const ScaleShift& a) {
  const ApplyAffine run = choose_affine(a.dtype, a.activation, a.residual != nullptr, false);
  const Pieces pieces(a.shape);
  const int64_t count = pieces.count(), tasks = a.shape.blocks() * count;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < tasks; ++i) {
    // Samples outside, blocks inside: the order in memory.
    const int64_t block = i % a.shape.blocks();
    Affine affine = {.input = a.input, .residual = a.residual, .output = a.output, .mask = nullptr};
    for (int64_t c = 0; c < kLanes; ++c) {
      affine.scale[c] = a.scale[block * kLanes + c];
      affine.shift[c] = a.shift[block * kLanes + c];
    }
    affine.lanes = channel_lanes(a.shape, block);
    run(affine, pieces.of(block, i / a.shape.blocks()));
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
