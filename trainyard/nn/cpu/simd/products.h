// Products of a map of type T with weights, in steps of Products<T>::kStep channels of a pixel. bf16_products.h has
// them for bfloat16. Follows the rules of compiled_for.h.
#pragma once

#include "trainyard/nn/cpu/simd/vector.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {  // NOLINT(google-build-namespaces): internal linkage is the point

template <typename T>
struct Products;

template <>
struct Products<float> {
  static constexpr int64_t kStep = 1;
  using Weights = Floats;
  [[gnu::always_inline]] static Weights weights(const float* from) { return load(from); }
  [[gnu::always_inline]] static Floats value(const float* from) { return fill(*from); }
  [[gnu::always_inline]] static Floats add(Floats value, Weights weights, Floats sum) {
    return multiply_add(value, weights, sum);
  }
  // Stores what products will multiply.
  [[gnu::always_inline]] static void keep(float* to, Floats value) { store(to, value); }
};

}  // namespace
}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
