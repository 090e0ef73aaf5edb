// Elements as kernels see them: 16 bytes at a time in memory, float in registers.
#pragma once

#include <cmath>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "trainyard/nn/cuda/kernels/kernels.h"

namespace trainyard::nn::cuda {

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(__half value) {
  return __half2float(value);
}
__device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

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

// kVector neighbours, moved by one instruction.
template <typename T, int kVector>
struct alignas(sizeof(T) * kVector) Pack {
  T value[kVector];
};

template <typename T, int kVector>
__device__ inline Pack<T, kVector> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kVector>*>(from);
}

template <typename T, int kVector>
__device__ inline void store(T* to, const Pack<T, kVector>& pack) {
  *reinterpret_cast<Pack<T, kVector>*>(to) = pack;
}

// Calls operation(T{}, std::integral_constant<int, vector>{}).
template <typename T, typename Operation>
void with_vector(int vector, const Operation& operation) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  if (vector == kWide) {
    operation(T{}, std::integral_constant<int, kWide>{});
  } else {
    operation(T{}, std::integral_constant<int, 1>{});
  }
}

template <typename Operation>
void with_element(Element element, int vector, const Operation& operation) {
  switch (element) {
    case Element::kFloat:
      return with_vector<float>(vector, operation);
    case Element::kHalf:
      return with_vector<__half>(vector, operation);
    case Element::kBFloat16:
      return with_vector<__nv_bfloat16>(vector, operation);
  }
}

}  // namespace trainyard::nn::cuda
