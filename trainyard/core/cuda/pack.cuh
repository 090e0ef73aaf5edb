// Neighbours in memory, moved by one instruction: 16 bytes is the most that a thread of a GPU moves at once.
#pragma once

#include <cuda_runtime_api.h>

namespace trainyard::core::cuda {

template <typename T>
constexpr int kWidestPack = 16 / static_cast<int>(sizeof(T));

template <typename T, int kVector = kWidestPack<T>>
struct alignas(sizeof(T) * kVector) Pack {
  static constexpr int kSize = kVector;
  T value[kVector];
};

// `from` and `to` are aligned as the pack is.
template <typename T, int kVector = kWidestPack<T>>
__device__ inline Pack<T, kVector> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kVector>*>(from);
}

template <typename T, int kVector>
__device__ inline void store(T* to, const Pack<T, kVector>& pack) {
  *reinterpret_cast<Pack<T, kVector>*>(to) = pack;
}

}  // namespace trainyard::core::cuda
