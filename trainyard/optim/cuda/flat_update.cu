// One launch updates all parameters: a block a part, 16 bytes a thread and access, each value read and written once. A
// formula that counts updates has a launch before it, one that is scaled by norms two.
#include <variant>

#include "trainyard/core/cuda/check_cuda.h"
#include "trainyard/core/cuda/pack.cuh"
#include "trainyard/core/cuda/reduce_block.cuh"
#include "trainyard/optim/cuda/kernels.h"

namespace trainyard::optim::cuda {
namespace {

using namespace core::cuda;

constexpr int kThreads = 256;

// The numbers of a step for one part, and what they make of one element.
template <typename T, typename Formula>
struct Update {
  static constexpr int kSlots = static_cast<int>(Formula::kSlots);
  T learning_rate, inverse_loss_scale, decay, update_decay, keep, clip;
  bool skip;
  Formula formula;

  __device__ Update(const FlatUpdate& u, const SegmentPart& part, const Formula& given)
      : inverse_loss_scale(static_cast<T>(*u.inverse_loss_scale)),
        decay(part.decays != 0 ? static_cast<T>(u.decay) : T(0)),
        update_decay(part.decays != 0 ? static_cast<T>(u.update_decay) : T(0)),
        clip(static_cast<T>(u.clip)),
        skip(*u.found_inf != 0.0),
        formula(given) {
    if constexpr (kCountsUpdates<Formula>) formula = *static_cast<const Formula*>(u.derived);
    learning_rate = static_cast<T>(*u.learning_rate);
    keep = part.decays != 0 ? static_cast<T>(1 - *u.learning_rate * u.update_decay) : T(1);
  }

  __device__ T clipped(T gradient, T weight) const {
    T g = gradient * inverse_loss_scale + decay * weight;
    // Comparisons, so that not a number stays one as on the CPU.
    g = g < -clip ? -clip : g;
    return g > clip ? clip : g;
  }

  __device__ void keep_skipped(T* slots, const T* changed) const {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) slots[s] = skip ? slots[s] : changed[s];
  }

  // slots are changed in place.
  __device__ T apply(T gradient, T weight, T* slots) const {
    T changed[kSlots + 1];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) changed[s] = slots[s];
    T updated;
    if constexpr (kScaledByNorms<Formula>) {
      updated = formula.update(clipped(gradient, weight), weight, learning_rate, update_decay, changed);
    } else if constexpr (kTakesDecay<Formula>) {
      updated = formula.decayed(clipped(gradient, weight), weight, learning_rate, update_decay, changed);
    } else {
      updated = formula(clipped(gradient, weight), keep * weight, learning_rate, changed);
    }
    keep_skipped(slots, changed);
    return skip ? weight : updated;
  }

  __device__ T measure(T gradient, T weight, T* slots) const {
    T changed[kSlots + 1];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) changed[s] = slots[s];
    const T measured = formula.measure(clipped(gradient, weight), weight, update_decay, changed);
    keep_skipped(slots, changed);
    return measured;
  }
};

// Derives the formula's members for this update, and moves the count on where the update is not skipped.
template <typename Formula>
__global__ void begin_update_kernel(Formula formula, UpdateCount* count, const double* found_inf, Formula* derived) {
  UpdateCount next = *count;
  formula.begin_update(next);
  *derived = formula;
  if (*found_inf == 0.0) *count = next;
}

template <typename T, typename Formula>
__global__ void measure_kernel(FlatUpdate u, Formula formula) {
  constexpr int kSlots = static_cast<int>(Formula::kSlots);
  const SegmentPart part = u.parts[blockIdx.x];
  const Update<T, Formula> update(u, part, formula);
  const T* const values = static_cast<const T*>(u.values) + part.begin;
  const T* const gradients = static_cast<const T*>(u.gradients) + part.begin;
  double weights = 0, measured = 0;
  for (int i = static_cast<int>(threadIdx.x); i < part.count; i += kThreads) {
    T own[kSlots + 1];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) own[s] = static_cast<const T*>(u.slots[s])[part.begin + i];
    const double w = static_cast<double>(values[i]);
    const double m = static_cast<double>(update.measure(gradients[i], values[i], own));
#pragma unroll
    for (int s = 0; s < static_cast<int>(Formula::kMeasuredSlots); ++s) {
      static_cast<T*>(u.slots[s])[part.begin + i] = own[s];
    }
    weights += w * w;
    measured += m * m;
  }
  weights = reduce_block<kThreads>(weights, Sum{});
  measured = reduce_block<kThreads>(measured, Sum{});
  if (threadIdx.x != 0) return;
  u.sums[2 * blockIdx.x] = weights;
  u.sums[2 * blockIdx.x + 1] = measured;
}

// A block a segment.
template <typename Formula>
__global__ void ratio_kernel(FlatUpdate u, Formula formula) {
  const int segment = static_cast<int>(blockIdx.x);
  double weights = 0, measured = 0, decays = 0;
  for (int p = static_cast<int>(threadIdx.x); p < u.part_count; p += kThreads) {
    if (u.parts[p].segment != segment) continue;
    weights += u.sums[2 * p];
    measured += u.sums[2 * p + 1];
    decays += u.parts[p].decays;
  }
  weights = reduce_block<kThreads>(weights, Sum{});
  measured = reduce_block<kThreads>(measured, Sum{});
  decays = reduce_block<kThreads>(decays, Sum{});
  if (threadIdx.x != 0) return;
  const bool adapts = (decays > 0 || u.adapt_undecayed) && weights > 0 && measured > 0;
  u.ratios[segment] = adapts ? formula.ratio(sqrt(weights), sqrt(measured), decays > 0 ? u.update_decay : 0.0) : 1.0;
}

template <typename T, typename Formula>
__global__ void flat_update_kernel(FlatUpdate u, Formula formula) {
  constexpr int kSize = kWidestPack<T>;
  constexpr int kSlots = static_cast<int>(Formula::kSlots);
  const SegmentPart part = u.parts[blockIdx.x];
  Update<T, Formula> update(u, part, formula);
  if constexpr (kScaledByNorms<Formula>) {
    update.learning_rate = static_cast<T>(*u.learning_rate * u.ratios[part.segment]);
  }
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

template <typename T, typename Formula>
void launch_as(const FlatUpdate& update, const Formula& formula, cudaStream_t stream) {
  static_assert(Formula::kSlots <= kMostSlots);
  const auto blocks = static_cast<unsigned>(update.part_count);
  if constexpr (kCountsUpdates<Formula>) {
    begin_update_kernel<Formula>
        <<<1, 1, 0, stream>>>(formula, update.count, update.found_inf, static_cast<Formula*>(update.derived));
  }
  if constexpr (kScaledByNorms<Formula>) {
    const auto segments = static_cast<unsigned>(update.segments);
    measure_kernel<T, Formula><<<blocks, kThreads, 0, stream>>>(update, formula);
    ratio_kernel<Formula><<<segments, kThreads, 0, stream>>>(update, formula);
  }
  flat_update_kernel<T, Formula><<<blocks, kThreads, 0, stream>>>(update, formula);
}

template <typename Formula>
void launch(const FlatUpdate& update, const Formula& formula, cudaStream_t stream) {
  if (update.is_double) {
    launch_as<double>(update, formula, stream);
  } else {
    launch_as<float>(update, formula, stream);
  }
}

}  // namespace

void launch_flat_update(const FlatUpdate& update, const AnyFormula& formula, cudaStream_t stream) {
  if (update.part_count == 0) return;
  std::visit([&](const auto& known) { launch(update, known, stream); }, formula);
  check_cuda(cudaGetLastError(), "update of the parameters");
}

}  // namespace trainyard::optim::cuda
