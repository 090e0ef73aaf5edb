// Elements in a kernel: their C++ types, their conversions from and to float.
#pragma once

#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "trainyard/core/cuda/element.h"
#include "trainyard/core/cuda/pack.cuh"

namespace trainyard::core::cuda {

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(__half value) {
  return __half2float(value);
}
__device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

// Rounds to the nearest, ties to even.
template <typename T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// Calls operation(T{}) with the C++ type of `element`.
template <typename Operation>
void with_element(Element element, const Operation& operation) {
  switch (element) {
    case Element::kFloat:
      return operation(float{});
    case Element::kHalf:
      return operation(__half{});
    case Element::kBFloat16:
      return operation(__nv_bfloat16{});
  }
}

// Calls operation(T{}, std::integral_constant<int, N>{}) with N = `vector`, which is 1 or the type's widest pack.
template <typename Operation>
void with_element(Element element, int vector, const Operation& operation) {
  with_element(element, [&](auto type) {
    using T = decltype(type);
    if (vector == kWidestPack<T>) {
      operation(T{}, std::integral_constant<int, kWidestPack<T>>{});
    } else {
      operation(T{}, std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace trainyard::core::cuda
