#include "trainyard/nn/cpu/norm/gradient_passes.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// Sums d and d * (input - mean) over a span, and writes d where a.masked asks for it.
template <typename T, UnitActivation kind, bool has_mask>
void collect(const NormBackward& a, const Block& block, const Span& span, Sums& sums) {
  const T* const input = static_cast<const T*>(a.input);
  T* const masked = static_cast<T*>(a.masked);
  const PerLane<T> scale(block.scale), shift(block.shift), mean(block.mean);
  LaneSums<T> first, second;
  each_pixel(
      span, [&]<int pixels, int slot>(int64_t at) __attribute__((always_inline)) {
        Floats x[pixels], d[pixels];
        load_group<pixels>(input + at, x);
        load_gradient<T, kind, has_mask, pixels>(a, scale, shift, at, x, d);
        for (int k = 0; k < pixels; ++k) {
          first.template part<pixels, slot>(k) += d[k];
          Floats& product = second.template part<pixels, slot>(k);
          product = multiply_add(d[k], x[k] - mean.template part<pixels>(k), product);
        }
        if (masked != nullptr) store_group<pixels>(masked + at, d, false);
      });
  float sum[kLanes], products[kLanes];
  first.store_to(sum);
  second.store_to(products);
  for (int64_t c = 0; c < kLanes; ++c) {
    sums.first[c] = sum[c];
    sums.second[c] = products[c];
  }
}

using Collect = void (*)(const NormBackward&, const Block&, const Span&, Sums&);
using Apply = void (*)(const NormBackward&, const Block&, bool past_caches, const Span&);

// The loops of both passes for these arguments.
struct Passes {
  Collect first;
  Apply second;
  NormBackward again;  // what the second one reads
  bool past_caches;
};

template <typename T>
Passes passes_of(const NormBackward& a) {
  Passes passes = {
      .first = collect<T, UnitActivation::kRelu, true>, .second = apply<T, UnitActivation::kRelu, true>, .again = a};
  if (a.mask == nullptr) {
    with_activation(a.activation, [&](auto kind) {
      passes.first = collect<T, kind.kValue, false>;
      passes.second = apply<T, kind.kValue, false>;
    });
  }
  // The second pass takes d from where the first one wrote it.
  if (a.masked != nullptr) {
    passes.again.gradients[0] = a.masked;
    passes.again.gradient_count = 1;
    passes.second = apply<T, UnitActivation::kNone, false>;
  }
  passes.past_caches = a.input_gradient != a.input && goes_past_caches<T>(a.shape, a.input_gradient);
  for (int g = 0; g < a.gradient_count; ++g) {
    passes.past_caches = passes.past_caches && a.input_gradient != a.gradients[g];
  }
  return passes;
}

template <typename T>
void run(const NormBackward& a) {
  const Passes passes = passes_of<T>(a);
  const double count = static_cast<double>(a.shape.batch * a.shape.pixels());
  in_waves<Block>(
      a.shape, (1 + a.gradient_count) * sizeof(T) * kLanes,
      [&](int64_t block, const Span& span, Sums& sums) { passes.first(a, block_of(a, block), span, sums); },
      [&](int64_t block, const Sums& total) {
        write_parameter_gradients(a, block, total);
        return combine(a, block, total, count);
      },
      [&](const Block& state, const Span& span) { passes.second(passes.again, state, passes.past_caches, span); });
}

template <typename T>
void write_sums(const NormBackward& a) {
  const Passes passes = passes_of<T>(a);
  sum_blocks(
      a.shape, [&](int64_t block, const Span& span, Sums& sums) { passes.first(a, block_of(a, block), span, sums); },
      [&](int64_t block, const Sums& total) {
        write_parameter_gradients(a, block, total);
        for (int64_t c = 0; c < kLanes && block * kLanes + c < a.shape.channels; ++c) {
          a.sums[block * kLanes + c] = total.first[c];
          a.sums[a.shape.channels + block * kLanes + c] = total.second[c];
        }
      });
}

template <typename T>
void write_input_gradient(const NormBackward& a) {
  const Passes passes = passes_of<T>(a);
  apply_to_blocks<Block>(
      a.shape,
      [&](int64_t block) {
        Sums total = {};
        for (int64_t c = 0; c < kLanes && block * kLanes + c < a.shape.channels; ++c) {
          total.first[c] = a.sums[block * kLanes + c];
          total.second[c] = a.sums[a.shape.channels + block * kLanes + c];
        }
        return combine(a, block, total, a.count);
      },
      [&](const Block& state, const Span& span) { passes.second(passes.again, state, passes.past_caches, span); });
}

}  // namespace

TRAINYARD_KERNEL_OF_TYPES(norm_backward, NormBackward, run)
TRAINYARD_KERNEL_OF_TYPES(norm_gradient_sums, NormBackward, write_sums)
TRAINYARD_KERNEL_OF_TYPES(norm_backward_with_sums, NormBackward, write_input_gradient)

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
