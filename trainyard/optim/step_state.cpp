#include "trainyard/optim/step_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace trainyard::optim {

StepState::StepState(at::Device device)
    : tensor_(at::zeros({kFieldCount}, at::TensorOptions().dtype(at::kDouble).device(device))) {}

void StepState::write(const StepValues& values) {
  at::Tensor host = at::empty({kFieldCount}, at::kDouble);
  auto* fields = host.mutable_data_ptr<double>();
  fields[kLearningRate] = values.learning_rate;
  fields[kInverseLossScale] = values.inverse_loss_scale;
  fields[kStep] = static_cast<double>(values.step);
  fields[kFoundInf] = values.found_inf ? 1.0 : 0.0;
  fields[kRandomOffset] = static_cast<double>(values.random_offset);
  tensor_.copy_(host);
}

StepValues StepState::read() const {
  const at::Tensor host = tensor_.cpu();
  const auto* fields = host.const_data_ptr<double>();
  return {.learning_rate = fields[kLearningRate],
          .inverse_loss_scale = fields[kInverseLossScale],
          .step = static_cast<int64_t>(fields[kStep]),
          .found_inf = fields[kFoundInf] != 0.0,
          .random_offset = static_cast<int64_t>(fields[kRandomOffset])};
}

}  // namespace trainyard::optim
