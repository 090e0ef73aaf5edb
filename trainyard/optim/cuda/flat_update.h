// optim/flat_update.h on a GPU.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

#include "trainyard/nn/cuda/device_tensor.h"
#include "trainyard/optim/cuda/kernels.h"
#include "trainyard/optim/optimizer.h"

namespace trainyard::optim::cuda {

// The update's pointers and numbers, but for its slots.
FlatUpdate flat_update_of(const Optimizer& optimizer, const StepState& state);

template <typename Formula>
void flat_update(const Optimizer& optimizer, const StepState& state,
                 const std::array<at::Tensor, Formula::kSlots>& slots, const Formula& formula) {
  static_assert(Formula::kSlots <= kMostSlots);
  FlatUpdate update = flat_update_of(optimizer, state);
  for (size_t s = 0; s < slots.size(); ++s) update.slots[s] = slots[s].data_ptr();
  launch_flat_update(update, formula, nn::cuda::current_stream());
  optimizer.parameters().values_changed();
}

}  // namespace trainyard::optim::cuda
