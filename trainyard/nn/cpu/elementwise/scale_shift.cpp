#include "trainyard/nn/cpu/elementwise/activation.h"
#include "trainyard/nn/cpu/elementwise/affine.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

template <typename T, UnitActivation kind, bool has_residual, bool has_mask>
void apply(const Affine& a, const Span& span) {
  const T* const input = static_cast<const T*>(a.input);
  const T* const residual = static_cast<const T*>(a.residual);
  T* const output = static_cast<T*>(a.output);
  uint8_t* const mask = a.mask;
  const PerLane<T> scale(a.scale), shift(a.shift), inside(a.inside);
  const bool past_caches = a.past_caches;
  each_pixel(
      span, [&]<int pixels, int>(int64_t at) __attribute__((always_inline)) {
        Floats u[pixels], added[pixels];
        load_group<pixels>(input + at, u);
        if constexpr (has_residual) load_group<pixels>(residual + at, added);
        for (int k = 0; k < pixels; ++k) {
          u[k] = multiply_add(u[k], scale.template part<pixels>(k), shift.template part<pixels>(k));
          if constexpr (has_residual) u[k] += added[k];
        }
        if constexpr (has_mask) store_passing<T, pixels>(mask, at, u);
        for (int k = 0; k < pixels; ++k) {
          u[k] = activate<kind>(u[k]);
          if constexpr (!keeps_zero(kind)) u[k] *= inside.template part<pixels>(k);
        }
        store_group<pixels>(output + at, u, past_caches);
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
  const Spans spans(a.shape, 0, a.shape.blocks());
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < spans.count(); ++i) {
    const int64_t block = spans.block(i);
    Affine affine = {.input = a.input, .residual = a.residual, .output = a.output, .mask = nullptr};
    for (int64_t c = 0; c < kLanes; ++c) {
      affine.scale[c] = a.scale[block * kLanes + c];
      affine.shift[c] = a.shift[block * kLanes + c];
      affine.inside[c] = block * kLanes + c < a.shape.channels ? 1 : 0;
    }
    affine.past_caches = false;  // what inference writes is read next
    run(affine, spans[i]);
  }
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
