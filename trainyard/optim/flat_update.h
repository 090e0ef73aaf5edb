// The one pass over a parameter set's flat blocks that every optimizer makes: gradients are unscaled, decayed and
// clipped, then go through the optimizer's formula, all in registers; each weight, gradient and slot is read once and
// written once.
//
//   flat_update(*this, state, {velocity_}, MomentumFormula<true>{.momentum = 0.9});
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

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "trainyard/core/base/export.h"
#include "trainyard/optim/optimizer.h"
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
  T learning_rate, inverse_loss_scale, decay, clip;
  bool skip;
};

template <typename T, size_t kSlots, typename Formula>
void update_range(T* values, const T* gradients, const std::array<T*, kSlots>& slots, int64_t begin, int64_t end,
                  const Scalars<T>& scalars, const Formula& formula) {
#if !defined(__clang__)
#pragma GCC ivdep  // blocks of one set never overlap
#endif
  for (int64_t i = begin; i < end; ++i) {
    const T weight = values[i];
    T gradient = gradients[i] * scalars.inverse_loss_scale + scalars.decay * weight;
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
void run(const Optimizer& optimizer, const StepState& state, const std::array<at::Tensor, kSlots>& slot_tensors,
         const Formula& formula) {
  const nn::ParameterSet& set = optimizer.parameters();
  const auto& segments = set.segments();
  T* values = set.values().mutable_data_ptr<T>();
  const T* gradients = set.gradients().const_data_ptr<T>();
  std::array<T*, kSlots> slots{};
  for (size_t s = 0; s < kSlots; ++s) slots[s] = slot_tensors[s].template mutable_data_ptr<T>();
  const at::Tensor state_tensor = state.tensor();
  const auto* fields = state_tensor.const_data_ptr<double>();

  const double learning_rate = fields[StepState::kLearningRate];
  const Scalars<T> common{.learning_rate = static_cast<T>(learning_rate),
                          .inverse_loss_scale = static_cast<T>(fields[StepState::kInverseLossScale]),
                          .decay = 0,
                          .clip = static_cast<T>(clip_of(optimizer)),
                          .skip = fields[StepState::kFoundInf] != 0.0};

  const int64_t blocks = (set.total() + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, kGrainBlocks, [&](int64_t first_block, int64_t last_block) {
    const int64_t first = first_block * kBlock, last = last_block * kBlock;
    auto segment = std::partition_point(segments.begin(), segments.end(),
                                        [&](const nn::Segment& s) { return s.offset + s.count <= first; });
    for (; segment != segments.end() && segment->offset < last; ++segment) {
      const auto index = static_cast<size_t>(segment - segments.begin());
      if (!optimizer.trainable(index)) continue;
      Scalars<T> scalars = common;
      scalars.learning_rate = static_cast<T>(learning_rate * optimizer.rate_factor(index));
      scalars.decay = static_cast<T>(optimizer.weight_decay(index) * optimizer.weight_decay_factor());
      update_range<T, kSlots>(values, gradients, slots, std::max(first, segment->offset),
                              std::min(last, segment->offset + segment->count), scalars, formula);
    }
  });
}

}  // namespace flat_update_internal

// A formula is one of formulas.h. Calls values_changed().
template <typename Formula>
void flat_update(const Optimizer& optimizer, const StepState& state,
                 const std::array<at::Tensor, Formula::kSlots>& slots, const Formula& formula) {
  const nn::ParameterSet& set = optimizer.parameters();
  if (const DeviceKernels* const device = optimizer.device()) {
    device->flat_update({.values = set.values(),
                         .gradients = set.gradients(),
                         .slots = slots,
                         .parts = &optimizer.parts(),
                         .fields = state.tensor(),
                         .decay = optimizer.options().weight_decay * optimizer.weight_decay_factor(),
                         .clip = flat_update_internal::clip_of(optimizer)},
                        formula);
  } else if (set.values().scalar_type() == at::kDouble) {
    flat_update_internal::run<double>(optimizer, state, slots, formula);
  } else {
    flat_update_internal::run<float>(optimizer, state, slots, formula);
  }
  optimizer.parameters().values_changed();
}

}  // namespace trainyard::optim
TRAINYARD_EXPORT_END
