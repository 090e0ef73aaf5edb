// The one pass over a parameter set's flat blocks that every optimizer makes: gradients are unscaled, decayed and
// clipped (by norms that were measured before), then go through the optimizer's formula, all in registers; each weight,
// gradient and slot is read once and written once.
//
//   flat_update(*this, state, gradients, {velocity_}, MomentumFormula<true>{.momentum = 0.9});
//
// The state tensor is read inside, on the device of the parameters, and a step with found_inf is a select on every
// store: the caller never branches on it, nor waits for it. Every element's result has the same bits on any number of
// threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/optim/optimizers/complete_gradients.h"
#include "trainyard/optim/optimizers/optimizer.h"
#include "trainyard/optim/step/device_kernels.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::optim {

namespace flat_update_internal {

// Chunks of threads begin at multiples of this many elements, as segments do, so that which elements fall into vector
// loops and which into their remainders does not depend on the number of threads.
inline constexpr int64_t kBlock = 16;
inline constexpr int64_t kGrainBlocks = 2048;  // 128 KiB of floats a thread at least

inline double clip_of(const Optimizer& optimizer) {
  return optimizer.options().gradient_clip.value_or(std::numeric_limits<double>::infinity());
}

template <typename T>
struct Scalars {
  T learning_rate, inverse_loss_scale, l2_rate, l1_rate, clip;
  bool skip;
};

// Returns the numbers of a step for one segment. Complete gradients need no scale and no regularization.
template <typename T>
Scalars<T> scalars_of(const Optimizer& optimizer, size_t segment, const double* fields, bool complete) {
  const double regularization = complete ? 0.0 : optimizer.weight_decay_factor();
  return {.learning_rate = static_cast<T>(fields[StepState::kLearningRate] * optimizer.rate_factor(segment)),
          .inverse_loss_scale = complete ? T(1) : static_cast<T>(fields[StepState::kInverseLossScale]),
          .l2_rate = static_cast<T>(optimizer.l2_rate(segment) * regularization),
          .l1_rate = static_cast<T>(optimizer.l1_rate(segment) * regularization),
          .clip = static_cast<T>(clip_of(optimizer)),
          .skip = fields[StepState::kFoundInf] != 0.0};
}

// Returns the same for gradients that are clipped by norm: the factor needs no pass of its own.
template <typename T>
Scalars<T> times(Scalars<T> scalars, double factor, bool with_regularization) {
  scalars.inverse_loss_scale *= static_cast<T>(factor);
  if (with_regularization) {
    scalars.l2_rate *= static_cast<T>(factor);
    scalars.l1_rate *= static_cast<T>(factor);
  }
  return scalars;
}

// Returns the gradient of the whole loss: unscaled, with that of the regularization.
template <bool kL1, typename T>
T whole_gradient(T gradient, T weight, const Scalars<T>& scalars) {
  T whole = gradient * scalars.inverse_loss_scale + scalars.l2_rate * weight;
  if constexpr (kL1) whole += weight > 0 ? scalars.l1_rate : weight < 0 ? -scalars.l1_rate : T(0);
  return whole;
}

// Calls work(scalars, first, last) for the elements [first, last) of all segments that train, on the calling
// thread's intra-op threads.
template <typename T, typename Work>
void for_each_range(const Optimizer& optimizer, const StepState& state, bool complete, const Work& work) {
  const NormClipper* const clipper = complete ? nullptr : optimizer.norm_clipper();
  const nn::ParameterSet& set = optimizer.parameters();
  const auto& segments = set.segments();
  const at::Tensor state_tensor = state.tensor();
  const auto* fields = state_tensor.const_data_ptr<double>();
  const int64_t blocks = (set.total() + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, kGrainBlocks, [&](int64_t first_block, int64_t last_block) {
    const int64_t first = first_block * kBlock, last = last_block * kBlock;
    auto segment = std::partition_point(segments.begin(), segments.end(),
                                        [&](const nn::Segment& s) { return s.offset + s.count <= first; });
    for (; segment != segments.end() && segment->offset < last; ++segment) {
      const auto index = static_cast<size_t>(segment - segments.begin());
      if (!optimizer.trainable(index)) continue;
      const Scalars<T> scalars = scalars_of<T>(optimizer, index, fields, complete);
      const int64_t begin = std::max(first, segment->offset), end = std::min(last, segment->offset + segment->count);
      if (clipper == nullptr) {
        work(scalars, begin, end);
        continue;
      }
      clipper->for_each_run(index, begin, end, [&](double factor, int64_t run_begin, int64_t run_end) {
        work(times(scalars, factor, clipper->clips_regularization()), run_begin, run_end);
      });
    }
  });
}

template <bool kL1, typename T, size_t kSlots, typename Formula>
void update_range(T* values, const T* gradients, const std::array<T*, kSlots>& slots, int64_t begin, int64_t end,
                  const Scalars<T>& scalars, const Formula& formula) {
#if !defined(__clang__)
#pragma GCC ivdep  // blocks of one set never overlap
#endif
  for (int64_t i = begin; i < end; ++i) {
    const T weight = values[i];
    T gradient = whole_gradient<kL1>(gradients[i], weight, scalars);
    gradient = std::min(std::max(gradient, -scalars.clip), scalars.clip);
    std::array<T, kSlots> before{}, after{};
    for (size_t s = 0; s < kSlots; ++s) before[s] = slots[s][i];
    after = before;
    const T updated = formula(gradient, weight, scalars.learning_rate, after.data());
    for (size_t s = 0; s < kSlots; ++s) slots[s][i] = scalars.skip ? before[s] : after[s];
    values[i] = scalars.skip ? weight : updated;
  }
}

template <typename T, size_t kSlots, typename Formula>
void run(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradient_tensor,
         const std::array<at::Tensor, kSlots>& slot_tensors, const Formula& formula) {
  T* values = optimizer.parameters().values().template mutable_data_ptr<T>();
  const T* gradients = gradient_tensor.const_data_ptr<T>();
  std::array<T*, kSlots> slots{};
  for (size_t s = 0; s < kSlots; ++s) slots[s] = slot_tensors[s].template mutable_data_ptr<T>();
  for_each_range<T>(optimizer, state, optimizer.gradients_complete(),
                    [&](const Scalars<T>& scalars, int64_t first, int64_t last) {
                      if (scalars.l1_rate != 0) {
                        update_range<true, T, kSlots>(values, gradients, slots, first, last, scalars, formula);
                      } else {
                        update_range<false, T, kSlots>(values, gradients, slots, first, last, scalars, formula);
                      }
                    });
}

}  // namespace flat_update_internal

// A formula is one of formulas.h. One that is not in AnyFormula is for the host's memory only: its optimizer calls
// require_host_memory(). gradients: as for Optimizer::apply().
template <typename Formula>
void flat_update(const Optimizer& optimizer, const StepState& state, const at::Tensor& gradients,
                 const std::array<at::Tensor, Formula::kSlots>& slots, const Formula& formula) {
  const at::Tensor values = optimizer.parameters().values();
  if constexpr (std::is_constructible_v<AnyFormula, Formula>) {
    if (const DeviceKernels* const device = optimizer.device()) {
      const bool complete = optimizer.gradients_complete();
      device->flat_update({.values = values,
                           .gradients = gradients,
                           .slots = slots,
                           .parts = &optimizer.parts(),
                           .fields = complete ? unscaled_fields(state) : state.tensor(),
                           .decay = complete ? 0.0 : optimizer.options().weight_decay * optimizer.weight_decay_factor(),
                           .clip = flat_update_internal::clip_of(optimizer)},
                          formula);
      return;
    }
  }
  if (values.scalar_type() == at::kDouble) {
    flat_update_internal::run<double>(optimizer, state, gradients, slots, formula);
  } else {
    flat_update_internal::run<float>(optimizer, state, gradients, slots, formula);
  }
}

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
