// One launch updates all parameters: a block a part, 16 bytes a thread and access, each value read and written once.
#include "trainyard/nn/cuda/kernels/kernels.h"
#include "trainyard/optim/cuda/kernels.h"
#include "trainyard/optim/formulas.h"

namespace trainyard::optim::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T value[kSize];
};

template <typename T, typename Formula>
struct Update {
  T learning_rate, inverse_loss_scale, decay, clip;
  bool skip;
  Formula formula;

  // slots are changed in place.
  __device__ T apply(T gradient, T weight, T* slots) const {
    T g = gradient * inverse_loss_scale + decay * weight;
    // Comparisons, so that not a number stays one as on the CPU.
    g = g < -clip ? -clip : g;
    g = g > clip ? clip : g;
    constexpr int kSlots = static_cast<int>(Formula::kSlots);
    T changed[kSlots + 1];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) changed[s] = slots[s];
    const T updated = formula(g, weight, learning_rate, changed);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) slots[s] = skip ? slots[s] : changed[s];
    return skip ? weight : updated;
  }
};

template <typename T, typename Formula>
__global__ void flat_update_kernel(FlatUpdate u, Formula formula) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kSlots = static_cast<int>(Formula::kSlots);
  const SegmentPart part = u.parts[blockIdx.x];
  const Update<T, Formula> update{static_cast<T>(*u.learning_rate),
                                  static_cast<T>(*u.inverse_loss_scale),
                                  part.decays != 0 ? static_cast<T>(u.decay) : T(0),
                                  static_cast<T>(u.clip),
                                  *u.found_inf != 0.0,
                                  formula};
  T* const values = static_cast<T*>(u.values) + part.begin;
  const T* const gradients = static_cast<const T*>(u.gradients) + part.begin;
  T* slots[kSlots + 1];
#pragma unroll
  for (int s = 0; s < kSlots; ++s) slots[s] = static_cast<T*>(u.slots[s]) + part.begin;

  const int whole = part.count / kSize * kSize;
  for (int i = static_cast<int>(threadIdx.x) * kSize; i < whole; i += kThreads * kSize) {
    Pack<T> weight = *reinterpret_cast<const Pack<T>*>(values + i);
    const Pack<T> gradient = *reinterpret_cast<const Pack<T>*>(gradients + i);
    Pack<T> slot[kSlots + 1];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) slot[s] = *reinterpret_cast<const Pack<T>*>(slots[s] + i);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      T own[kSlots + 1];
#pragma unroll
      for (int s = 0; s < kSlots; ++s) own[s] = slot[s].value[k];
      weight.value[k] = update.apply(gradient.value[k], weight.value[k], own);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) slot[s].value[k] = own[s];
    }
    *reinterpret_cast<Pack<T>*>(values + i) = weight;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) *reinterpret_cast<Pack<T>*>(slots[s] + i) = slot[s];
  }
  // The few behind the last whole pack.
  for (int i = whole + static_cast<int>(threadIdx.x); i < part.count; i += kThreads) {
    T own[kSlots + 1];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) own[s] = slots[s][i];
    values[i] = update.apply(gradients[i], values[i], own);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) slots[s][i] = own[s];
  }
}

}  // namespace

template <typename Formula>
void launch_flat_update(const FlatUpdate& update, const Formula& formula, cudaStream_t stream) {
  if (update.part_count == 0) return;
  const auto blocks = static_cast<unsigned>(update.part_count);
  if (update.is_double) {
    flat_update_kernel<double, Formula><<<blocks, kThreads, 0, stream>>>(update, formula);
  } else {
    flat_update_kernel<float, Formula><<<blocks, kThreads, 0, stream>>>(update, formula);
  }
  nn::cuda::check_cuda(cudaGetLastError(), "update of the parameters");
}

template void launch_flat_update(const FlatUpdate&, const SgdFormula&, cudaStream_t);
template void launch_flat_update(const FlatUpdate&, const MomentumFormula<false>&, cudaStream_t);
template void launch_flat_update(const FlatUpdate&, const MomentumFormula<true>&, cudaStream_t);

}  // namespace trainyard::optim::cuda
