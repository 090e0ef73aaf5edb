// One launch updates all parameters: a block a part, 16 bytes a thread and access, each value read and written once.
#include <variant>

#include "trainyard/core/cuda/check_cuda.h"
#include "trainyard/core/cuda/pack.cuh"
#include "trainyard/optim/cuda/kernels.h"

namespace trainyard::optim::cuda {
namespace {

using namespace core::cuda;

constexpr int kThreads = 256;

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
  constexpr int kSize = kWidestPack<T>;
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
    Pack<T> weight = load(values + i);
    const Pack<T> gradient = load(gradients + i);
    Pack<T> slot[kSlots + 1];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) slot[s] = load(slots[s] + i);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      T own[kSlots + 1];
#pragma unroll
      for (int s = 0; s < kSlots; ++s) own[s] = slot[s].value[k];
      weight.value[k] = update.apply(gradient.value[k], weight.value[k], own);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) slot[s].value[k] = own[s];
    }
    store(values + i, weight);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) store(slots[s] + i, slot[s]);
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

template <typename Formula>
void launch(const FlatUpdate& update, const Formula& formula, cudaStream_t stream) {
  static_assert(Formula::kSlots <= kMostSlots);
  const auto blocks = static_cast<unsigned>(update.part_count);
  if (update.is_double) {
    flat_update_kernel<double, Formula><<<blocks, kThreads, 0, stream>>>(update, formula);
  } else {
    flat_update_kernel<float, Formula><<<blocks, kThreads, 0, stream>>>(update, formula);
  }
}

}  // namespace

void launch_flat_update(const FlatUpdate& update, const AnyFormula& formula, cudaStream_t stream) {
  if (update.part_count == 0) return;
  std::visit([&](const auto& known) { launch(update, known, stream); }, formula);
  check_cuda(cudaGetLastError(), "update of the parameters");
}

}  // namespace trainyard::optim::cuda
